#pragma once

#include <pybind11/pybind11.h>

namespace sb3_hrl {

void bind_images(pybind11::module_& module);

}  // namespace sb3_hrl
