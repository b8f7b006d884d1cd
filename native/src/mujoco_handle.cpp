#include "sb3_hrl/mujoco_handle.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <stdexcept>

#include "sb3_hrl/errors.hpp"

extern "C" mjfLogHandler _mjPRIVATE_setTlsLogHandler(mjfLogHandler handler);

namespace sb3_hrl {
namespace {

thread_local MessageGuard* current_guard = nullptr;
thread_local char last_error[1024];  // written before the jump, which would skip a string's destructor

void handle_message(const mjLogMessage* message) {
  if (message->level != mjLOG_ERROR) return;
  std::snprintf(last_error, sizeof(last_error), "%s", message->subject);
  std::longjmp(current_guard->place, 1);
}

std::mutex timers_mutex;  // guards what follows, and our changes of mjcb_time
int n_without_timers = 0;
mjfTime clock_before = nullptr;

// Not a null pointer: another thread may stand between MuJoCo's look at the pointer and its call.
mjtNum no_time() { return 0.0; }

}  // namespace

MessageGuard::MessageGuard()
    : previous_handler_(_mjPRIVATE_setTlsLogHandler(handle_message)), previous_guard_(current_guard) {
  current_guard = this;
}

MessageGuard::~MessageGuard() {
  current_guard = previous_guard_;
  _mjPRIVATE_setTlsLogHandler(previous_handler_);
}

std::string MessageGuard::message() const { return last_error; }

NoTimers::NoTimers() {
  const std::lock_guard<std::mutex> lock(timers_mutex);
  if (n_without_timers++ == 0) {
    clock_before = mjcb_time;
    mjcb_time = no_time;
  }
}

NoTimers::~NoTimers() {
  const std::lock_guard<std::mutex> lock(timers_mutex);
  // Somebody may have set a clock of his own meanwhile.
  if (--n_without_timers == 0 && mjcb_time == no_time) mjcb_time = clock_before;
}

void throw_mujoco_error(const MessageGuard& guard) { throw NativeError("MuJoCo: " + guard.message()); }

std::string compile_model(const std::string& path, int n_memory) {
  ModelHandle model;
  char error[1000] = "";
  try {
    guarded([&] { model.reset(mj_loadXML(path.c_str(), nullptr, error, sizeof(error))); });
  } catch (const NativeError& mujoco_error) {
    throw std::invalid_argument(mujoco_error.what());
  }
  if (!model) throw std::invalid_argument(error);
  model->nuserdata = std::max<decltype(model->nuserdata)>(model->nuserdata, n_memory);
  std::string bytes(static_cast<std::size_t>(mj_sizeModel(model.get())), '\0');
  mj_saveModel(model.get(), nullptr, bytes.data(), static_cast<mjtSize>(bytes.size()));
  return bytes;
}

ModelHandle load_model(const std::string& bytes) {
  ModelHandle model;
  try {
    guarded([&] { model.reset(mj_loadModelBuffer(bytes.data(), static_cast<mjtSize>(bytes.size()))); });
  } catch (const NativeError& error) {
    throw std::invalid_argument(error.what());
  }
  if (!model) throw std::invalid_argument("these bytes are no compiled model of MuJoCo " + std::string(mj_versionString()));
  return model;
}

DataHandle make_data(const mjModel* model) {
  DataHandle data;
  guarded([&] { data.reset(mj_makeData(model)); });
  if (!data) throw NativeError("MuJoCo cannot allocate the data of a simulation");
  return data;
}

}  // namespace sb3_hrl
