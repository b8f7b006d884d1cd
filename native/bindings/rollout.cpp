// The Python face of the rollout. sb3_hrl.rollout.native_rollout is the checked front.

#include "rollout.hpp"

#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "sb3_hrl/mlp_policy.hpp"
#include "sb3_hrl/moments.hpp"
#include "sb3_hrl/rollout.hpp"

namespace py = pybind11;

namespace sb3_hrl {
namespace {

using PyLayer = std::tuple<Array<float>, Array<float>, std::string, double>;
using PyNormalization = std::tuple<Array<double>, Array<double>, double>;

std::vector<LayerSpec> read_layers(const std::vector<PyLayer>& layers) {
  std::vector<LayerSpec> specs;
  for (const auto& [weight, bias, activation, parameter] : layers) {
    if (weight.ndim() != 2) throw std::invalid_argument("expected a weight with two axes");
    const auto n_out = static_cast<std::size_t>(weight.shape(0)), n_in = static_cast<std::size_t>(weight.shape(1));
    if (!specs.empty() && specs.back().n_out != n_in) throw std::invalid_argument("the layers do not fit together");
    specs.push_back({weight.data(), input(bias, n_out), n_in, n_out, activation, parameter});
  }
  if (specs.empty()) throw std::invalid_argument("expected at least one layer");
  return specs;
}

Distribution read_distribution(const std::string& name) {
  if (name == "gaussian") return Distribution::gaussian;
  if (name == "state_dependent") return Distribution::state_dependent;
  if (name == "squashed_state_dependent") return Distribution::squashed_state_dependent;
  if (name == "categorical") return Distribution::categorical;
  throw std::invalid_argument("there is no distribution '" + name + "'");
}

// A policy with the arrays that its weights lie in.
class HoldingPolicy : public MlpPolicy {
 public:
  HoldingPolicy(const std::vector<PyLayer>& actor, const std::vector<PyLayer>& critic, Distribution distribution,
                const float* scales)
      : MlpPolicy(read_layers(actor), read_layers(critic), distribution, scales), actor_(actor), critic_(critic) {}

 private:
  std::vector<PyLayer> actor_, critic_;
};

std::unique_ptr<MlpPolicy> make_policy(const std::vector<PyLayer>& actor, const std::vector<PyLayer>& critic,
                                       const std::string& distribution_name, const Array<float>& scales) {
  const Distribution distribution = read_distribution(distribution_name);
  const std::vector<LayerSpec> actor_specs = read_layers(actor), critic_specs = read_layers(critic);
  const LayerSpec& last = actor_specs.back();
  if (actor_specs.front().n_in != critic_specs.front().n_in || critic_specs.back().n_out != 1) {
    throw std::invalid_argument("actor and critic do not fit together");
  }
  const std::size_t n_scales = distribution == Distribution::categorical ? 0
                               : distribution == Distribution::gaussian  ? last.n_out
                                                                         : last.n_in * last.n_out;
  return std::make_unique<HoldingPolicy>(actor, critic, distribution, input(scales, n_scales));
}

std::tuple<py::array_t<float>, py::array_t<float>, py::array_t<float>> forward(const MlpPolicy& policy, const Array<float>& obs,
                                                                               const Array<float>& noise) {
  if (obs.ndim() != 2) throw std::invalid_argument("expected observations with two axes");
  const auto n = static_cast<std::size_t>(obs.shape(0));
  py::array_t<float> actions({n, policy.n_actions()}), values({n, std::size_t{1}}), log_probs(obs.shape(0));
  policy.forward(input(obs, n * policy.n_obs()), input(noise, n * policy.n_noise()), n, actions.mutable_data(),
                 values.mutable_data(), log_probs.mutable_data());
  return {actions, values, log_probs};
}

EpisodeEnds collect(Engine& engine, MlpPolicy& policy, std::size_t n_steps, std::size_t shard_size,
                    const Array<float>& controls, bool is_choice, const std::optional<Array<std::int32_t>>& n_hold, double gamma,
                    const std::optional<PyNormalization>& normalization, const std::optional<Array<float>>& noise,
                    std::uint64_t noise_seed, std::uint64_t first_decision, std::size_t noise_sample_freq,
                    const Array<std::int64_t>& n_unstable_in_a_row, std::int64_t max_unstable_in_a_row,
                    Array<double>& observations, Array<float>& actions, Array<float>& rewards, Array<float>& log_probs,
                    Array<float>& values, Array<std::int64_t>& n_held, Array<std::uint8_t>& terminated,
                    Array<std::uint8_t>& truncated, Array<double>& infos, Array<double>& last_observations,
                    std::optional<Array<double>>& raw_observations, std::optional<Array<float>>& samples) {
  const std::size_t n_envs = engine.n_envs(), n = n_steps * n_envs;
  const std::size_t n_obs = engine.task().n_obs(), n_controls = engine.task().n_actions();
  const std::size_t n_choices = is_choice ? static_cast<std::size_t>(controls.size()) / n_controls : 0;
  const float* rows = input(controls, (is_choice ? n_choices : 2) * n_controls);
  if (normalization.has_value() != raw_observations.has_value()) {
    throw std::invalid_argument("normalization and raw_observations belong together");
  }
  std::optional<Normalization> how;
  if (normalization) {
    const auto& [means, scales, clip] = *normalization;
    how = {input(means, n_obs), input(scales, n_obs), clip};
  }
  const RolloutSettings settings{n_steps,
                                 shard_size,
                                 {rows, n_choices},
                                 n_hold ? input(*n_hold, n) : nullptr,
                                 gamma,
                                 how ? &*how : nullptr,
                                 noise ? input(*noise, n * policy.n_noise()) : nullptr,
                                 noise_seed,
                                 first_decision,
                                 noise_sample_freq,
                                 input(n_unstable_in_a_row, n_envs),
                                 max_unstable_in_a_row};
  const RolloutArrays out{output(observations, n * n_obs),
                          output(actions, n * (is_choice ? 1 : n_controls)),
                          output(rewards, n),
                          output(log_probs, n),
                          output(values, n),
                          output(n_held, n),
                          output(terminated, n),
                          output(truncated, n),
                          output(infos, n * engine.task().n_info()),
                          output(last_observations, n_envs * n_obs),
                          raw_observations ? output(*raw_observations, n * n_obs) : nullptr,
                          samples ? output(*samples, n * engine.task().n_sample()) : nullptr};
  const py::gil_scoped_release release;
  const OneTorchThread guard;
  return collect_rollout(engine, policy, settings, out, [](const std::function<void()>& work) {
    const OneTorchThread worker_guard;
    work();
  });
}

std::tuple<py::array_t<double>, py::array_t<double>> moments_of_columns(Engine& engine, const Array<double>& numbers,
                                                                            std::size_t sum_block) {
  if (numbers.ndim() != 2 || numbers.shape(0) < 1) throw std::invalid_argument("expected an array with two axes and rows");
  const auto n_rows = static_cast<std::size_t>(numbers.shape(0)), n_columns = static_cast<std::size_t>(numbers.shape(1));
  py::array_t<double> means(numbers.shape(1)), variances(numbers.shape(1));
  double *mean_data = means.mutable_data(), *variance_data = variances.mutable_data();
  {
    const py::gil_scoped_release release;
    column_moments(engine.pool(), numbers.data(), n_rows, n_columns, mean_data, variance_data, sum_block);
  }
  return {means, variances};
}

std::tuple<double, double> moments_of_returns(Array<double>& returns, const Array<float>& rewards,
                                              const Array<std::uint8_t>& dones, double gamma, std::size_t sum_block) {
  const auto n_envs = static_cast<std::size_t>(returns.size()), n = static_cast<std::size_t>(rewards.size());
  if (n_envs < 1 || n % n_envs != 0 || n < 1) throw std::invalid_argument("expected rewards [T, E] and returns [E]");
  const Moments moments =
      return_moments(output(returns, n_envs), rewards.data(), input(dones, n), n / n_envs, n_envs, gamma, sum_block);
  return {moments.mean, moments.variance};
}

template <typename Number, typename Member>
py::array_t<Number> column(const EpisodeEnds& ends, Member member) {
  py::array_t<Number> numbers(static_cast<py::ssize_t>(ends.ends.size()));
  for (std::size_t i = 0; i < ends.ends.size(); ++i) {
    numbers.mutable_at(static_cast<py::ssize_t>(i)) = static_cast<Number>(ends.ends[i].*member);
  }
  return numbers;
}

py::array_t<double> matrix(const std::vector<double>& numbers, std::size_t n_rows, std::size_t n_columns) {
  py::array_t<double> copy({n_rows, n_columns});
  std::copy(numbers.begin(), numbers.end(), copy.mutable_data());
  return copy;
}

}  // namespace

void bind_rollout(py::module_& module) {
  py::class_<MlpPolicy>(module, "MlpPolicy")
      .def(py::init(&make_policy), py::arg("actor"), py::arg("critic"), py::arg("distribution"), py::arg("scales"))
      .def("set_scales",
           [](MlpPolicy& policy, const Array<float>& scales) {
             policy.set_scales(input(scales, policy.noise_kind() == NoiseKind::uniform ? 0 : policy.n_noise()));
           },
           py::arg("scales"))
      .def("forward", &forward, py::arg("obs").noconvert(), py::arg("noise").noconvert())
      .def_property_readonly("n_actions", &MlpPolicy::n_actions)
      .def_property_readonly("n_noise", &MlpPolicy::n_noise);

  const auto array = [](const char* name) { return py::arg(name).noconvert(); };
  module.def("action_noise",
             [](std::uint64_t seed, std::uint64_t first_decision, std::size_t n_steps, std::size_t n_envs,
                std::size_t n_noise, bool is_uniform) {
               py::array_t<float> noise({n_steps, n_envs, n_noise});
               action_noise(is_uniform ? NoiseKind::uniform : NoiseKind::normal, seed, first_decision, n_steps, n_envs,
                            n_noise, noise.mutable_data());
               return noise;
             },
             py::arg("seed"), py::arg("first_decision"), py::arg("n_steps"), py::arg("n_envs"), py::arg("n_noise"),
             py::arg("is_uniform") = false);
  module.def("column_moments", &moments_of_columns, py::arg("engine"), array("numbers"), py::arg("sum_block"));
  module.def("return_moments", &moments_of_returns, array("returns"), array("rewards"), array("dones"), py::arg("gamma"),
             py::arg("sum_block"));
  module.def("collect_rollout",
             [](Engine& engine, MlpPolicy& policy, std::size_t n_steps, std::size_t shard_size,
                const Array<float>& controls, bool is_choice, const std::optional<Array<std::int32_t>>& n_hold, double gamma,
                const std::optional<PyNormalization>& normalization, const std::optional<Array<float>>& noise,
                std::uint64_t noise_seed, std::uint64_t first_decision, std::size_t noise_sample_freq,
                const Array<std::int64_t>& n_unstable_in_a_row, std::int64_t max_unstable_in_a_row,
                Array<double>& observations, Array<float>& actions, Array<float>& rewards, Array<float>& log_probs,
                Array<float>& values, Array<std::int64_t>& n_held, Array<std::uint8_t>& terminated,
                Array<std::uint8_t>& truncated, Array<double>& infos, Array<double>& last_observations,
                std::optional<Array<double>>& raw_observations, std::optional<Array<float>>& samples) {
               const EpisodeEnds ends =
                   collect(engine, policy, n_steps, shard_size, controls, is_choice, n_hold, gamma, normalization, noise, noise_seed,
                           first_decision, noise_sample_freq, n_unstable_in_a_row, max_unstable_in_a_row, observations,
                           actions, rewards, log_probs, values, n_held, terminated, truncated, infos, last_observations,
                           raw_observations, samples);
               const std::size_t n = ends.ends.size();
               return std::make_tuple(
                   column<std::int64_t>(ends, &EpisodeEnd::step), column<std::int64_t>(ends, &EpisodeEnd::env_index),
                   column<double>(ends, &EpisodeEnd::episode_return), column<std::int64_t>(ends, &EpisodeEnd::episode_length),
                   column<bool>(ends, &EpisodeEnd::is_unstable), column<std::uint64_t>(ends, &EpisodeEnd::seed),
                   column<std::uint64_t>(ends, &EpisodeEnd::n_total_steps),
                   matrix(ends.terminal_obs, n, engine.task().n_obs()),
                   matrix(ends.reset_infos, n, engine.task().n_reset_info()));
             },
             py::kw_only(), py::arg("engine"), py::arg("policy"), py::arg("n_steps"), py::arg("shard_size"),
             array("controls"), py::arg("is_choice"), array("n_hold"), py::arg("gamma"), py::arg("normalization"), array("noise"),
             py::arg("noise_seed"), py::arg("first_decision"), py::arg("noise_sample_freq"), array("n_unstable_in_a_row"),
             py::arg("max_unstable_in_a_row"), array("observations"), array("actions"), array("rewards"), array("log_probs"),
             array("values"), array("n_held"), array("terminated"), array("truncated"), array("infos"),
             array("last_observations"), array("raw_observations"), array("samples"));
}

}  // namespace sb3_hrl
