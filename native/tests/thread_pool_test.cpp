#include "sb3_hrl/thread_pool.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/errors.hpp"

namespace sb3_hrl::test {
namespace {

const std::vector<int> kThreadCounts = {0, 1, 2, 7};
const char* const kBusy = "ThreadPool.run was called while another run of the same pool is under way";

void every_task_runs_once() {
  for (const auto caller : {ThreadPool::Caller::waits, ThreadPool::Caller::works}) {
    for (const int n_threads : kThreadCounts) {
      ThreadPool pool(n_threads, caller);
      CHECK_EQUAL(pool.n_threads(), n_threads);
      for (std::size_t n_tasks = 0; n_tasks < 200; ++n_tasks) {  // many short batches: a late worker would be caught here
        std::vector<int> n_calls(n_tasks);                       // plain ints: two calls for one index would be a race
        pool.run(n_tasks, [&](std::size_t i) { ++n_calls[i]; });
        CHECK_EQUAL(std::accumulate(n_calls.begin(), n_calls.end(), std::size_t{0}), n_tasks);
        for (const int count : n_calls) CHECK_EQUAL(count, 1);
        // Now and then longer than a thread is ready to look out for work: it sleeps then, and must wake.
        if (n_tasks % 50 == 7) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
  }
}

void a_caller_may_work_too() {
  ThreadPool pool(1, ThreadPool::Caller::works);
  std::atomic<int> n_begun{0};
  std::atomic<bool> has_called{false};
  pool.run(2, [&, caller = std::this_thread::get_id()](std::size_t) {
    ++n_begun;
    if (std::this_thread::get_id() == caller) has_called = true;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (n_begun < 2 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    CHECK_EQUAL(n_begun.load(), 2);
  });
  CHECK_EQUAL(has_called.load(), true);
}

void without_threads_the_caller_works() {
  ThreadPool pool(0);
  pool.run(3, [caller = std::this_thread::get_id()](std::size_t) { CHECK_EQUAL(std::this_thread::get_id(), caller); });
  ThreadPool other(1);
  other.run(3, [caller = std::this_thread::get_id()](std::size_t) {
    CHECK_EQUAL(std::this_thread::get_id() == caller, false);
  });
}

// Each long task waits for all the others to have begun, as shards of one rollout may.
void long_tasks_run_side_by_side() {
  ThreadPool pool(4);
  std::atomic<int> n_begun{0};
  pool.run(4, [&](std::size_t) {
    ++n_begun;
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (n_begun < 4 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
    CHECK_EQUAL(n_begun.load(), 4);
  });
}

void lowest_index_is_thrown_after_all_have_ended() {
  for (const int n_threads : kThreadCounts) {
    ThreadPool pool(n_threads);
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::atomic<int> n_ended{0};
      const std::string message = message_of<std::out_of_range>([&] {
        pool.run(50, [&](std::size_t i) {
          // The lower the index, the later the throw: the first in time is not the first in order.
          if (i < 10) std::this_thread::sleep_for(std::chrono::microseconds(10 * (10 - i)));
          ++n_ended;
          if (i >= 3) throw std::out_of_range("task " + std::to_string(i));
        });
      });
      CHECK_EQUAL(message, "task 3");
      CHECK_EQUAL(n_ended.load(), 50);
    }
    int n_calls = 0;
    pool.run(1, [&](std::size_t) { ++n_calls; });  // no error is left over
    CHECK_EQUAL(n_calls, 1);
  }
}

void a_nested_run_is_refused() {
  for (const int n_threads : kThreadCounts) {
    ThreadPool pool(n_threads);
    CHECK_EQUAL(message_of<NativeError>([&] {
                  pool.run(2, [&](std::size_t) { pool.run(1, [](std::size_t) {}); });
                }),
                kBusy);
    int n_calls = 0;
    pool.run(1, [&](std::size_t) { ++n_calls; });
    CHECK_EQUAL(n_calls, 1);
  }
}

void a_second_caller_is_refused() {
  for (const int n_threads : kThreadCounts) {
    ThreadPool pool(n_threads);
    std::promise<void> begun, release;
    std::thread first([&] {
      pool.run(1, [&](std::size_t) {
        begun.set_value();
        release.get_future().wait();
      });
    });
    begun.get_future().wait();
    const std::string message = message_of<NativeError>([&] { pool.run(1, [](std::size_t) {}); });
    release.set_value();
    first.join();
    CHECK_EQUAL(message, kBusy);
    pool.run(1, [](std::size_t) {});
  }
}

void a_negative_count_is_refused() {
  CHECK_EQUAL(message_of<std::invalid_argument>([] { ThreadPool pool(-1); }), "n_threads must be zero or more, not -1");
}

// A forked child has the object but not the threads: it must be told, and must be able to end.
void a_forked_child_is_refused() {
  auto pool = std::make_unique<ThreadPool>(2);
  pool->run(8, [](std::size_t) {});
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang ends the child by a signal
    const bool is_refused = !message_of<NativeError>([&] { pool->run(1, [](std::size_t) {}); }).empty();
    pool.reset();
    _exit(is_refused ? 0 : 1);
  }
  int status = -1;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK_EQUAL(status, 0);
  pool->run(8, [](std::size_t) {});
}

}  // namespace

void add_thread_pool_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["pool: every task runs once"] = every_task_runs_once;
  tests["pool: a caller may work too"] = a_caller_may_work_too;
  tests["pool: without threads the caller works"] = without_threads_the_caller_works;
  tests["pool: long tasks run side by side"] = long_tasks_run_side_by_side;
  tests["pool: lowest index is thrown after all have ended"] = lowest_index_is_thrown_after_all_have_ended;
  tests["pool: a nested run is refused"] = a_nested_run_is_refused;
  tests["pool: a second caller is refused"] = a_second_caller_is_refused;
  tests["pool: a negative count is refused"] = a_negative_count_is_refused;
  tests["pool: a forked child is refused"] = a_forked_child_is_refused;
}

}  // namespace sb3_hrl::test
