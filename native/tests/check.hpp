#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace sb3_hrl::test {

[[noreturn]] inline void fail(const char* file, int line, const std::string& what) {
  throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

template <typename Left, typename Right>
void check_equal(const char* file, int line, const char* text, const Left& left, const Right& right) {
  if (left == right) return;
  std::ostringstream what;
  what << text << ": \"" << left << "\" is not \"" << right << "\"";
  fail(file, line, what.str());
}

// The message with which `call` throws exactly an `Error`; empty when it does not throw.
template <typename Error, typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace sb3_hrl::test

#define CHECK_EQUAL(left, right) ::sb3_hrl::test::check_equal(__FILE__, __LINE__, #left " == " #right, left, right)
