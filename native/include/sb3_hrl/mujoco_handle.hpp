#pragma once

// MuJoCo's objects as values with an owner, and its errors as exceptions.

#include <mujoco/mujoco.h>

#include <csetjmp>
#include <memory>
#include <string>

namespace sb3_hrl {

struct ModelDeleter {
  void operator()(mjModel* model) const { mj_deleteModel(model); }
};
struct DataDeleter {
  void operator()(mjData* data) const { mj_deleteData(data); }
};
using ModelHandle = std::unique_ptr<mjModel, ModelDeleter>;
using DataHandle = std::unique_ptr<mjData, DataDeleter>;

// Compile an XML file; the bytes are those of an MJB file. At least `n_memory` numbers of userdata are there for the task.
// Throws std::invalid_argument with MuJoCo's message.
std::string compile_model(const std::string& path, int n_memory = 0);
// Throws std::invalid_argument when the bytes are no model of this version of MuJoCo.
ModelHandle load_model(const std::string& bytes);
DataHandle make_data(const mjModel* model);

// While it lives, this thread's MuJoCo messages stay inside the program: a warning is only counted in mjData (nothing is
// printed, no MUJOCO_LOG.TXT is written), and an error jumps to `place` instead of ending the process. MuJoCo offers this
// per thread by a function that it exports without declaring it, and uses it for its own Python bindings; the version of
// MuJoCo is pinned exactly, so it is there.
class MessageGuard {
 public:
  MessageGuard();
  ~MessageGuard();
  MessageGuard(const MessageGuard&) = delete;
  MessageGuard& operator=(const MessageGuard&) = delete;

  std::jmp_buf place;
  std::string message() const;

 private:
  mjfLogHandler previous_handler_;
  MessageGuard* previous_guard_;
};

// While one lives, MuJoCo does not look at the clock: it would time every stage of every step for `mjData.timer`, which costs
// about a seventh of a small model's step. The clock is one for the whole process, so others who simulate meanwhile find no
// times either; it is back when the last guard has gone.
class NoTimers {
 public:
  NoTimers();
  ~NoTimers();
  NoTimers(const NoTimers&) = delete;
  NoTimers& operator=(const NoTimers&) = delete;
};

// Call `call` and turn an error of MuJoCo's in it into a NativeError. The jump skips destructors: `call` must not own
// anything while it is inside MuJoCo.
template <typename Call>
void guarded(Call&& call);

[[noreturn]] void throw_mujoco_error(const MessageGuard& guard);

template <typename Call>
void guarded(Call&& call) {
  MessageGuard guard;
  if (setjmp(guard.place) != 0) throw_mujoco_error(guard);
  call();
}

}  // namespace sb3_hrl
