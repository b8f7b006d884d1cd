#include "sb3_hrl/thread_pool.hpp"

#include <unistd.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>

#include "sb3_hrl/errors.hpp"

namespace sb3_hrl {

struct ThreadPool::Batch {
  std::condition_variable begin;  // there are tasks to take, or `is_closing`
  std::condition_variable end;    // n_unfinished == 0

  std::mutex mutex;  // guards all that follows
  const Task* task = nullptr;
  std::size_t n_tasks = 0;
  std::size_t next = 0;  // the first task that nobody has taken
  std::size_t n_unfinished = 0;
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

ThreadPool::ThreadPool(int n_threads) : owner_(getpid()), batch_(std::make_unique<Batch>()) {
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
    batch.n_tasks = batch.n_unfinished = n_tasks;
    batch.next = 0;
    batch.errors.swap(errors);
    batch.is_running = true;
    if (threads_.empty()) {
      batch.run_remaining(lock);
    } else {
      batch.begin.notify_all();
      batch.end.wait(lock, [&] { return batch.n_unfinished == 0; });
    }
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
    batch.begin.wait(lock, [&] { return batch.next < batch.n_tasks || batch.is_closing; });
  }
}

void ThreadPool::join() {
  {
    std::lock_guard<std::mutex> lock(batch_->mutex);
    batch_->is_closing = true;
  }
  batch_->begin.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace sb3_hrl
