#include "sb3_hrl/thread_pool.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "sb3_hrl/errors.hpp"

namespace sb3_hrl {
namespace {

// For how long a thread looks for work by itself before it sleeps. Waking a sleeping thread takes tens of microseconds, on a
// virtual machine hundreds, and the next step of a vector of environments mostly comes sooner.
constexpr std::chrono::microseconds kPatience(1000);

// Wait a little for `is_ready`, without keeping anybody else from the processor.
template <typename Condition>
void look_out_for(const Condition& is_ready) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  while (!is_ready() && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
}

}  // namespace

struct ThreadPool::Batch {
  std::atomic<std::size_t> n_runs{0};        // how many runs have begun, or one more when closing: a hint to look at the rest
  std::atomic<std::size_t> n_unfinished{0};  // changed under the lock only

  std::condition_variable begin;  // there are tasks to take, or `is_closing`
  std::condition_variable end;    // n_unfinished == 0

  std::mutex mutex;  // guards all that follows
  const Task* task = nullptr;
  std::size_t n_tasks = 0;
  std::size_t next = 0;  // the first task that nobody has taken
  bool is_running = false;
  bool is_closing = false;
  std::vector<std::exception_ptr> errors;  // [n_tasks]; slot i is written by task i alone, without the lock

  void run_remaining(std::unique_lock<std::mutex>& lock);
};

void ThreadPool::Batch::run_remaining(std::unique_lock<std::mutex>& lock) {
  while (next < n_tasks) {
    const std::size_t index = next++;
    const Task& current = *task;
    lock.unlock();
    try {
      current(index);
    } catch (...) {
      errors[index] = std::current_exception();
    }
    lock.lock();
    if (--n_unfinished == 0) end.notify_one();
  }
}

ThreadPool::ThreadPool(int n_threads, Caller caller)
    : caller_(caller), owner_(getpid()), batch_(std::make_unique<Batch>()) {
  if (n_threads < 0) {
    throw std::invalid_argument("n_threads must be zero or more, not " + std::to_string(n_threads));
  }
  try {
    for (int i = 0; i < n_threads; ++i) threads_.emplace_back(&ThreadPool::work, this);
  } catch (...) {
    join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (getpid() == owner_) {
    join();
    return;
  }
  // In a forked child the threads do not exist: joining them, or destroying what they wait on, would never return.
  for (std::thread& thread : threads_) thread.detach();
  static_cast<void>(batch_.release());
}

int ThreadPool::n_threads() const { return static_cast<int>(threads_.size()); }

void ThreadPool::run(std::size_t n_tasks, const Task& task) {
  if (getpid() != owner_) {
    throw NativeError("this ThreadPool belongs to the parent process and has no threads here; make one after the fork");
  }
  std::vector<std::exception_ptr> errors(n_tasks);
  {
    Batch& batch = *batch_;
    std::unique_lock<std::mutex> lock(batch.mutex);
    if (batch.is_running) {
      throw NativeError("ThreadPool.run was called while another run of the same pool is under way");
    }
    batch.task = &task;
    batch.n_tasks = n_tasks;
    batch.n_unfinished = n_tasks;
    batch.next = 0;
    batch.errors.swap(errors);
    batch.is_running = true;
    const bool caller_works = threads_.empty() || caller_ == Caller::works;
    if (!threads_.empty() && !(caller_works && n_tasks == 1)) {
      ++batch.n_runs;
      lock.unlock();  // else those that wake would wait for the lock
      batch.begin.notify_all();
      lock.lock();
    }
    if (caller_works) batch.run_remaining(lock);
    lock.unlock();
    look_out_for([&] { return batch.n_unfinished == 0; });
    lock.lock();
    batch.end.wait(lock, [&] { return batch.n_unfinished == 0; });
    batch.is_running = false;
    batch.errors.swap(errors);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void ThreadPool::work() {
  Batch& batch = *batch_;
  std::unique_lock<std::mutex> lock(batch.mutex);
  while (!batch.is_closing) {
    batch.run_remaining(lock);
    const std::size_t n_runs = batch.n_runs;
    lock.unlock();
    look_out_for([&] { return batch.n_runs != n_runs; });
    lock.lock();
    batch.begin.wait(lock, [&] { return batch.next < batch.n_tasks || batch.is_closing; });
  }
}

void ThreadPool::join() {
  {
    std::lock_guard<std::mutex> lock(batch_->mutex);
    batch_->is_closing = true;
    ++batch_->n_runs;
  }
  batch_->begin.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace sb3_hrl
