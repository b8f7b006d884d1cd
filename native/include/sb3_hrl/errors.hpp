#pragma once

#include <stdexcept>

namespace sb3_hrl {

// A native failure or a broken invariant; the bindings raise it as sb3_hrl.errors.NativeError.
// Bad input is std::invalid_argument, which becomes a ValueError.
class NativeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sb3_hrl
