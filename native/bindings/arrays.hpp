#pragma once

// Arrays that cross the border: only their sizes are compared, since a wrong one would write into somebody else's memory.

#include <pybind11/numpy.h>

#include <stdexcept>
#include <string>

namespace sb3_hrl {

// C-contiguous; with `noconvert` another type is refused instead of copied.
template <typename Number>
using Array = pybind11::array_t<Number, pybind11::array::c_style>;

inline void check_size(const pybind11::array& array, std::size_t expected) {
  if (static_cast<std::size_t>(array.size()) == expected) return;
  throw std::invalid_argument("expected an array of " + std::to_string(expected) + " numbers, got " +
                              std::to_string(array.size()));
}

template <typename Number>
const Number* input(const Array<Number>& array, std::size_t expected) {
  check_size(array, expected);
  return array.data();
}

template <typename Number>
Number* output(Array<Number>& array, std::size_t expected) {
  check_size(array, expected);
  return array.mutable_data();  // throws for a read-only array
}

}  // namespace sb3_hrl
