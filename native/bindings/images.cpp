// The Python face of the networks of images. sb3_hrl.native_images is the checked front.

#include "images.hpp"

#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "sb3_hrl/image_network.hpp"

namespace py = pybind11;

namespace sb3_hrl {
namespace {

using PyConvolution = std::tuple<Array<float>, Array<float>, std::size_t, std::size_t>;
using PyConnection = std::pair<Array<float>, Array<float>>;

std::unique_ptr<ImageNetwork> make_network(const std::vector<PyConvolution>& convolutions, const PyConnection& connection,
                                           const std::tuple<std::size_t, std::size_t, std::size_t>& image, float white,
                                           bool halves, int n_threads) {
  const auto axis = [](const Array<float>& array, py::ssize_t index) { return static_cast<std::size_t>(array.shape(index)); };
  std::vector<ConvolutionSpec> specs;
  for (const auto& [weight, bias, row_stride, column_stride] : convolutions) {
    if (weight.ndim() != 4) throw std::invalid_argument("expected a weight with four axes");
    const std::size_t n_out = axis(weight, 0);
    specs.push_back({weight.data(), input(bias, n_out), axis(weight, 1), n_out, axis(weight, 2), axis(weight, 3), row_stride,
                     column_stride});
  }
  const auto& [weight, bias] = connection;
  if (weight.ndim() != 2) throw std::invalid_argument("expected a weight with two axes");
  const ConnectionSpec last{weight.data(), input(bias, axis(weight, 0)), axis(weight, 1), axis(weight, 0)};
  const auto [height, width, n_channels] = image;
  return std::make_unique<ImageNetwork>(specs, last, ImageSize{height, width, n_channels}, white, halves, n_threads);
}

py::array_t<float> features(ImageNetwork& network, const Array<std::uint8_t>& pixels) {
  const ImageSize& image = network.image();
  const auto n = pixels.ndim() > 0 ? static_cast<std::size_t>(pixels.shape(0)) : 0;
  const std::uint8_t* const bytes = input(pixels, n * image.height * image.width * image.n_channels);
  py::array_t<float> rows({n, network.n_features()});
  float* const numbers = rows.mutable_data();
  const py::gil_scoped_release release;
  network.run(bytes, n, numbers);
  return rows;
}

}  // namespace

void bind_images(py::module_& module) {
  py::class_<ImageNetwork>(module, "ImageNetwork")
      .def(py::init(&make_network), py::arg("convolutions"), py::arg("connection"), py::arg("image"), py::arg("white"),
           py::arg("halves"), py::arg("n_threads"))
      .def("features", &features, py::arg("pixels").noconvert());
}

}  // namespace sb3_hrl
