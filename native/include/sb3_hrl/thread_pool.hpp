#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace sb3_hrl {

// A fixed number of worker threads that run one batch of tasks at a time. A task may be short (one environment's step)
// or long (a shard's whole rollout).
class ThreadPool {
 public:
  using Task = std::function<void(std::size_t)>;

  // Whether the thread that calls `run` takes tasks too, or waits. With zero threads it takes them all.
  enum class Caller { waits, works };

  explicit ThreadPool(int n_threads, Caller caller = Caller::waits);
  // Joins the threads. No `run` may be under way.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const;

  // Call task(0) … task(n_tasks - 1) in any order and return when all of them have ended. An exception stops no other
  // task; the one with the lowest index is thrown again here, whichever thread was faster, and the pool stays usable.
  // Throws NativeError when a run of this pool is under way (nested, or from another thread) and in a forked child.
  void run(std::size_t n_tasks, const Task& task);

 private:
  struct Batch;

  void work();
  void join();

  const Caller caller_;
  const pid_t owner_;             // a forked child inherits this object without its threads
  std::unique_ptr<Batch> batch_;  // shared with the threads
  std::vector<std::thread> threads_;
};

}  // namespace sb3_hrl
