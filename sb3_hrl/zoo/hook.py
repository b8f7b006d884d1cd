"""
What happens to rl-zoo3 when it is imported: its tables learn the plug-ins, its experiment manager gets a subclass.

The start-up module calls ``after_import`` right after one of four rl_zoo3 modules has run, before anybody else can have taken
names from it; that is why replacing a name here reaches every zoo command. Stock algorithms keep the zoo's classes.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

from sb3_hrl.registry import ALGORITHMS, VEC_ENVS, WRAPPERS, Plugin, get_plugin, plugins, register_envs
from sb3_hrl.vec_env.recipe import monitor_folder

# Every name that the bridge relies on, and of callables the parameters that it uses. A contract test walks the same table.
PLACES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "rl_zoo3.utils": {
        "ALGOS": (),
        "get_wrapper_class": ("hyperparams", "key"),
        "get_saved_hyperparams": ("stats_path",),
        "create_test_env": ("hyperparams", "env_kwargs", "log_dir"),
        "get_model_path": (),
    },
    "rl_zoo3.hyperparams_opt": {"HYPERPARAMS_SAMPLER": (), "HYPERPARAMS_CONVERTER": ()},
    "rl_zoo3.import_envs": {},
    "rl_zoo3.exp_manager": {
        "ALGOS": (),
        "ExperimentManager.__init__": ("algo", "env_id", "config", "trained_agent", "storage", "study_name", "trial_id"),
        "ExperimentManager.read_hyperparameters": (),
        "ExperimentManager.load_trial": ("storage", "study_name", "trial_id"),
        "ExperimentManager._preprocess_hyperparams": ("hyperparams",),
        "ExperimentManager._maybe_normalize": ("env", "eval_env"),
        "ExperimentManager.create_envs": ("n_envs", "eval_env", "no_log"),
        "ExperimentManager.create_callbacks": (),
        "ExperimentManager.learn": ("model",),
        "ExperimentManager.save_trained_model": ("model",),
        "ExperimentManager._load_pretrained_agent": ("hyperparams", "env"),
        "ExperimentManager._save_config": ("saved_hyperparams",),
        "ExperimentManager.hyperparameters_optimization": (),
        "optuna.create_study": ("storage",),
    },
}

_has_warned = False
# The model that enjoy has chosen; it makes the environments next, and loads the model last.
_model_path: str | None = None
_algorithms: "LazyAlgorithms | None" = None


def after_import(module: ModuleType) -> None:
    """
    Adapt a zoo module that has just been executed. If it cannot be done, no zoo command offers the plug-ins, and a warning
    says why.

    :param module: one of the modules in ``PLACES``
    """
    try:
        missing = missing_places(module)
        if missing:
            raise LookupError(f"it lacks {', '.join(missing)}")
        _ADAPTERS[module.__name__](module)
    except Exception as error:
        _withdraw()
        _warn_once(module.__name__, error)


def missing_places(module: ModuleType) -> list[str]:
    """
    :param module: one of the modules in ``PLACES``
    :return: the names and parameters that this rl_zoo3 does not have
    """
    missing = []
    for place, parameters in PLACES[module.__name__].items():
        target: Any = module
        for part in place.split("."):
            target = getattr(target, part, None)
        if target is None:
            missing.append(place)
        elif parameters:
            known = inspect.signature(target).parameters
            missing += [f"{place}({name})" for name in parameters if name not in known]
    return missing


def _withdraw() -> None:
    """Take the plug-ins out of ``ALGOS`` again: half a bridge would carry them into errors that nobody could explain."""
    for name in _algorithms.plugin_names if _algorithms is not None else ():
        _algorithms.pop(name, None)  # type: ignore[union-attr]


def _warn_once(name: str, error: Exception) -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(
            f"sb3-hrl cannot extend this rl_zoo3, so its algorithms are not available here: {name}: {error}. "
            "Install a version that fits (pip install 'rl_zoo3>=2.9.2,<2.10'), or set SB3_HRL_NO_ZOO_HOOK=1 to do without.",
            RuntimeWarning,
            stacklevel=2,
        )


class LazyAlgorithms(dict[str, Any]):
    """
    The zoo's ``ALGOS`` with the plug-ins beside its own classes; a plug-in's class is imported at its first use.

    :param stock: the zoo's own algorithms, which no plug-in replaces
    :param announced: the plug-ins
    """

    def __init__(self, stock: Mapping[str, Any], announced: Mapping[str, Plugin]) -> None:
        super().__init__({**announced, **stock})
        self.plugin_names = frozenset(announced) - frozenset(stock)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Plugin):
            value = self[name] = value.load_field("algorithm")
        return value

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default  # noqa: SIM401 (dict's own would return the unloaded plug-in)

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _adapt_utils(utils: Any) -> None:
    global _algorithms
    _algorithms = LazyAlgorithms(utils.ALGOS, plugins(ALGORITHMS))
    for name, plugin in plugins(ALGORITHMS).items():
        if name not in _algorithms.plugin_names:
            warnings.warn(f"the algorithm {name!r} of {plugin.distribution} is ignored: rl_zoo3 has its own", stacklevel=2)
    utils.ALGOS = _algorithms

    get_wrapper_class, get_saved_hyperparams = utils.get_wrapper_class, utils.get_saved_hyperparams
    create_test_env, get_model_path = utils.create_test_env, utils.get_model_path

    @wraps(get_wrapper_class)
    def get_wrapper_class_by_short_name(hyperparams: dict[str, Any], key: str = "env_wrapper") -> Callable | None:
        return get_wrapper_class(
            {**hyperparams, key: _with_dotted_names(hyperparams[key], key)} if key in hyperparams else {}, key
        )

    @wraps(get_saved_hyperparams)
    def get_saved_hyperparams_for_testing(*args: Any, **kwargs: Any) -> tuple[dict[str, Any], str | None]:
        # enjoy and record_video look at a trained agent, as evaluation does.
        hyperparams, stats_path = get_saved_hyperparams(*args, **kwargs)
        if "eval_env_kwargs" in hyperparams:
            hyperparams["env_kwargs"] = hyperparams.pop("eval_env_kwargs") or {}
        return hyperparams, stats_path

    @wraps(create_test_env)
    def create_test_env_with_kwargs(*args: Any, **kwargs: Any) -> Any:
        # enjoy has taken env_kwargs out of the saved hyperparameters by now; record_video never looks.
        bound = inspect.signature(create_test_env).bind(*args, **kwargs)
        saved_kwargs = (bound.arguments.get("hyperparams") or {}).pop("env_kwargs", None) or {}
        bound.arguments["env_kwargs"] = {**saved_kwargs, **(bound.arguments.get("env_kwargs") or {})}
        with monitor_folder(bound.arguments.get("log_dir")):
            env = create_test_env(*bound.args, **bound.kwargs)
        if _model_path is not None:
            use_own_statistics(env, _model_path)
        return env

    @wraps(get_model_path)
    def get_model_path_and_note_it(*args: Any, **kwargs: Any) -> tuple[str, str, str]:
        global _model_path
        names = get_model_path(*args, **kwargs)
        _model_path = names[1]
        return names

    utils.get_wrapper_class = get_wrapper_class_by_short_name
    utils.get_saved_hyperparams = get_saved_hyperparams_for_testing
    utils.create_test_env = create_test_env_with_kwargs
    utils.get_model_path = get_model_path_and_note_it


def use_own_statistics(env: Any, model_path: str) -> None:
    """
    The zoo keeps one file of statistics for all models of a run; a checkpoint of ours holds those that belong to it.

    :param env: environments, perhaps in a ``VecNormalize``, which gets them
    :param model_path: of the model
    """
    from stable_baselines3.common.vec_env import unwrap_vec_normalize

    from sb3_hrl.checkpoint import read_normalization

    normalize = unwrap_vec_normalize(env)
    if normalize is not None:
        read_normalization(model_path, normalize)


def _with_dotted_names(wrappers: Any, key: str) -> Any:
    """
    :param wrappers: what ``env_wrapper`` or ``vec_env_wrapper`` says: a name, a ``{name: kwargs}`` mapping, or a list of these
    :param key: which of the two
    :return: the same with each short name replaced by the dotted path that the zoo understands
    """
    if isinstance(wrappers, list):
        return [_with_dotted_names(wrapper, key) for wrapper in wrappers]
    if isinstance(wrappers, dict):
        return {_with_dotted_names(name, key): kwargs for name, kwargs in wrappers.items()}
    if not isinstance(wrappers, str) or "." in wrappers:
        return wrappers
    plugin = get_plugin(VEC_ENVS if key == "vec_env_wrapper" else WRAPPERS, wrappers)
    plugin.load()
    return plugin.value.replace(":", ".")


def _adapt_hyperparams_opt(hyperparams_opt: Any) -> None:
    def later(name: str, field: str) -> Callable:
        return lambda *args: get_plugin(ALGORITHMS, name).load_field(field)(*args)

    for name in _algorithms.plugin_names if _algorithms is not None else ():
        hyperparams_opt.HYPERPARAMS_SAMPLER.setdefault(name, later(name, "sampler"))
        hyperparams_opt.HYPERPARAMS_CONVERTER.setdefault(name, later(name, "converter"))


def _adapt_import_envs(import_envs: Any) -> None:
    register_envs()


def _adapt_exp_manager(exp_manager: Any) -> None:
    from sb3_hrl.zoo.manager import PluginExperimentManager

    exp_manager.ExperimentManager = PluginExperimentManager


_ADAPTERS: Mapping[str, Callable[[Any], None]] = {
    "rl_zoo3.utils": _adapt_utils,
    "rl_zoo3.hyperparams_opt": _adapt_hyperparams_opt,
    "rl_zoo3.import_envs": _adapt_import_envs,
    "rl_zoo3.exp_manager": _adapt_exp_manager,
}
