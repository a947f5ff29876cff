"""`TaskScheduler`: the tasks of a network within one budget, by the auto-scheduler's names.

In: tasks and weights.  Out: a log; a table, the estimated latency and, where the tasks know their
network, the measured one.  Which task is next is decided by predicted gain: `search/loop.py`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from tilewright.base.errors import SpaceError, TilewrightError, absent
from tilewright.base.terminal import say
from tilewright.schedule.task import Task
from tilewright.search.gradient import Gradient
from tilewright.search.jobs import task_id
from tilewright.search.report import Event, Options, Report
from tilewright.search.transfer import read_history
from tilewright_tvm.auto_scheduler.cost_model import RandomModel, XGBModel
from tilewright_tvm.auto_scheduler.measure import TuningOptions, checked_options
from tilewright_tvm.auto_scheduler.records import Log, Path, make_folder, writing
from tilewright_tvm.auto_scheduler.search_policy import SketchPolicy
from tilewright_tvm.auto_scheduler.search_task import SearchTask
from tilewright_tvm.auto_scheduler.tuning import known_of, print_failures, run, tell_unknown

MODELS = {"default": XGBModel, "sketch.xgb": XGBModel, "sketch.random": RandomModel}
STRATEGIES = {"gradient": "gain", "round-robin": "turns"}  # -> of the loop
DESCRIPTION = 61  # characters of a task's description in the table


class TaskSchedulerCallback:
    """Subclass it: called before and after each round of trials."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None: ...

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None: ...


class PrintTableInfo(TaskSchedulerCallback):
    """Prints the table of tasks before each round."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        if task_scheduler.verbose:
            say(task_scheduler.table(task_id))


class LogEstimatedLatency(TaskSchedulerCallback):
    """Writes a line after each round: elapsed seconds, estimated latency in ms, trials.

    log_file: replaced when tuning starts; its folder is made where it is missing
    Raises RecordError where it cannot be written: for the folder at once, for the file when the
    first trial is over.
    """

    def __init__(self, log_file: Path) -> None:
        make_folder(log_file)
        self.log_file = log_file
        self._started: float | None = None

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        if self._started != task_scheduler.tic:
            self._started = task_scheduler.tic
            with writing(self.log_file):
                pass  # what an earlier run wrote is gone

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        total = task_scheduler.estimated_latency()
        latency = "N/A" if total is None else f"{total * 1e3:.3f}"
        with writing(self.log_file, "a") as f:
            f.write(
                f"ElapsedTime(s)\t{time.time() - task_scheduler.tic:.0f}\t"
                f"EstimatedLatency(ms)\t{latency}\tTrials\t{task_scheduler.ct}\n"
            )


class TaskScheduler:
    """tasks, task_weights: as `extract_tasks` gives them; default weights: one each
    strategy:        "gradient": the task with the greatest predicted gain; "round-robin"
    load_model_file: what `XGBModel.save` wrote
    load_log_file:   go on from this log: models, best results, nothing is measured twice
    history:         logs of other tasks and devices, TVM's too, that the model starts from
    callbacks:       default: `PrintTableInfo()` and `LogEstimatedLatency("total_latency.tsv")`
    objective_func:  what is to be made small: takes `best_costs`, a list of seconds by task;
                     default: the sum weighted by `task_weights`
    alpha, beta, backward_window_size: where one of them is given, which task is next goes by
                     Ansor's gradient with them (0.2, 2 and 3 where they are not), else by the
                     search's own prediction; see `search.gradient.Gradient`
    gamma:           it had no effect in TVM; another than 0.5 is refused

    While it tunes: best_costs: seconds by task (1e10: none yet); task_cts: trials by task, with
    those of earlier runs; ct: their sum; tic: when it began; dead_tasks: those that are through.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], task_weights: Sequence[float] | None = None,
        objective_func: Any = None, strategy: str = "gradient",
        load_model_file: Path | None = None, load_log_file: Path | None = None,
        alpha: float | None = None, beta: float | None = None, gamma: float = 0.5,
        backward_window_size: int | None = None,
        callbacks: Sequence[Any] | None = None, *, history: Sequence[Path] = (),
    ) -> None:  # fmt: skip
        self.tasks, self.history = list(tasks), list(history)
        if not self.tasks:
            raise SpaceError("TaskScheduler(tasks=[])", "there is no task", "Extract some first.")
        self.task_weights = _weights(self.tasks, task_weights)
        if objective_func is not None and not callable(objective_func):
            raise SpaceError(
                f"TaskScheduler(objective_func={objective_func!r})", "it is no function",
                "Give one of a list of seconds, one for each task.",
            )  # fmt: skip
        if gamma != 0.5:
            raise SpaceError(
                f"TaskScheduler(gamma={gamma!r})", "nothing goes by it, in TVM neither",
                "Leave it out; alpha and beta have an effect.",
            )  # fmt: skip
        self.objective_func = objective_func
        self.gradient = _gradient(alpha, beta, backward_window_size)
        if strategy not in STRATEGIES:
            raise SpaceError(
                f"TaskScheduler(strategy={strategy!r})", "no such strategy",
                f"Use one of {', '.join(STRATEGIES)}.",
            )  # fmt: skip
        self.strategy = strategy
        self.load_model_file, self.load_log_file = load_model_file, load_log_file
        default = [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
        self.callbacks = default if callbacks is None else list(callbacks)
        for callback in self.callbacks:
            if not (hasattr(callback, "pre_tune") and hasattr(callback, "post_tune")):
                raise SpaceError(
                    f"TaskScheduler(callbacks=[{callback!r}])", "it has no pre_tune and post_tune",
                    "Subclass TaskSchedulerCallback.",
                )  # fmt: skip
        self.verbose, self.tic = 1, time.time()
        self.best_costs = [1e10] * len(self.tasks)
        self.task_cts = [0] * len(self.tasks)
        self.dead_tasks: set[int] = set()
        self.measured_latency: float | None = None
        self._round, self._last = 64, 0

    @property
    def ct(self) -> int:
        return sum(self.task_cts)

    def tune(
        self, tune_option: TuningOptions, search_policy: str | Sequence[SketchPolicy] = "default",
        search_policy_params: Mapping[str, Any] | None = None, adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> Report:  # fmt: skip
        """Tune all tasks within the budget, which `num_measure_trials` counts over all of them.

        search_policy: "default", "sketch.xgb", "sketch.random", or a policy for each task
        Ctrl-C ends it at any time: what was measured is written.
        """
        trials = checked_options("TaskScheduler.tune", tune_option).num_measure_trials
        if 0 < trials < len(self.tasks):
            raise SpaceError(
                f"TuningOptions(num_measure_trials={trials})",
                f"there are {len(self.tasks)} tasks",
                f"Give at least {len(self.tasks)}; {800 * len(self.tasks)} is a good number.",
            )  # fmt: skip
        policies = self._policies(search_policy, search_policy_params)
        model = policies[0].cost_model
        if self.load_model_file is not None and isinstance(model, XGBModel):
            model.load(self.load_model_file)
        histories = list(dict.fromkeys(h for p in policies for h in p.histories))
        if self.load_log_file is not None:
            histories.append(self.load_log_file)
        log = known_of(histories, [t.target for t in self.tasks])
        tasks = [policy.task() for policy in policies]
        for task, weight in zip(tasks, self.task_weights, strict=True):
            task.weight = weight  # type: ignore[assignment]
        self.task_cts = [_trials(log, task) for task in tasks]
        self.best_costs = [1e10] * len(self.tasks)
        self.measured_latency = None
        self.dead_tasks, self._round = set(), tune_option.num_measures_per_round
        self.verbose, self.tic = tune_option.verbose, time.time()
        if self.verbose:
            tell_unknown(log, histories, tasks)
        options = Options(
            trials=trials or None, seconds=tune_option.seconds,
            early_stopping=per_task_early_stopping, patience=tune_option.early_stopping,
            tuner=model.tuner, seed=policies[0].seed, order=STRATEGIES[self.strategy],
            objective=self.objective_func, gradient=self.gradient,
        )  # fmt: skip
        past = read_history(self.history, tasks) if self.history else None
        report = run(tasks, tune_option, options, log, model.model, policies, self._on_event, past)
        self._finish(report, log, tune_option)
        report.check()
        return report

    def estimated_latency(self) -> float | None:
        """Seconds: the weighted sum of the best, or the objective; None while a task has none."""
        if any(cost >= 1e10 for cost in self.best_costs):
            return None
        if self.objective_func is not None:
            return float(self.objective_func(list(self.best_costs)))
        return sum(c * w for c, w in zip(self.best_costs, self.task_weights, strict=True))

    def table(self, next_id: int | None = None) -> str:
        """Latency, speed and trials of every task, and their totals."""
        rule = "-" * (DESCRIPTION + 53)
        lines = [
            "-" * 70, f"{'-' * 30}  [ Task Scheduler ]", "-" * 70,
            f"|  ID  | {'Task Description':^{DESCRIPTION}} "
            "| Latency (ms) | Speed (GFLOPS) | Trials |",
            rule,
        ]  # fmt: skip
        for k, task in enumerate(self.tasks):
            cost, flop = self.best_costs[k], task.compute_dag.flop_ct
            latency = speed = "-"
            if cost < 1e10:
                latency = f"{cost * 1e3:.3f}"
                speed = f"{flop / cost * 1e-9:.2f}" if flop else "-"
            desc = task.desc[:DESCRIPTION]
            lines.append(
                f"| {k:4d} | {desc:>{DESCRIPTION}} | {latency:>12} | {speed:>14} "
                f"| {self.task_cts[k]:6d} |"
            )
        total = self.estimated_latency()
        latency = "-" if total is None else f"{total * 1e3:.3f}"
        footer = f"Estimated total latency: {latency} ms\tTrials: {self.ct}"
        footer += f"\tUsed time : {time.time() - self.tic:.0f} s"
        if next_id is not None:
            footer += f"\tNext ID: {next_id}"
        return "\n".join([*lines, rule, footer])

    # -- parts -------------------------------------------------------------------------------------
    def _policies(self, given: Any, params: Mapping[str, Any] | None) -> list[SketchPolicy]:
        if isinstance(given, str):
            if given not in MODELS:
                raise SpaceError(
                    f"TaskScheduler.tune(search_policy={given!r})", "no such policy",
                    f"Use one of {', '.join(MODELS)}.",
                )  # fmt: skip
            model = MODELS[given]()
            return [SketchPolicy(task, model, params) for task in self.tasks]
        policies = list(given) if isinstance(given, (list, tuple)) else [given]
        if [getattr(p, "search_task", None) for p in policies] != self.tasks:
            raise SpaceError(
                "TaskScheduler.tune(search_policy=[...])", "not one policy for each task, in order",
                "Make them with [SketchPolicy(task, model) for task in tasks].",
            )  # fmt: skip
        return policies

    def _on_event(self, event: Event) -> None:
        """Rounds are counted in results; the first result of one begins it."""
        k = event.task
        if event.message and self.verbose:
            say(event.message)
        if event.kind == "trial" and (event.trial - 1) % self._round == 0:
            self._call("pre_tune", k)
        if event.best is not None:
            self.best_costs[k] = event.best
        if event.kind == "trial":
            self.task_cts[k] += 1
            self._last = k
            if event.trial % self._round == 0:
                self._call("post_tune", k)
        elif event.kind in ("exhausted", "stopped", "fruitless"):
            self.dead_tasks.add(k)

    def _call(self, what: str, task_id: int) -> None:
        for callback in self.callbacks:
            getattr(callback, what)(self, task_id)

    def _finish(self, report: Report, log: Log, option: TuningOptions) -> None:
        """The last table, what failed, and the network as a whole."""
        for k, task in enumerate(report.tasks):
            if task.best is not None:
                self.best_costs[k] = task.best.seconds
        if report.trials % self._round:
            self._call("post_tune", self._last)
        if option.verbose:
            say(self.table())
            self._tell_failures(report, log)
        if all(t.network is not None and t.network is self.tasks[0].network for t in self.tasks):
            self._measure_network(log)

    def _tell_failures(self, report: Report, log: Log) -> None:
        without = [k for k, task in enumerate(report.tasks) if task.best is None]
        if without:
            ids = ", ".join(map(str, without))
            say(f"No valid schedule was found for tasks {ids}; they keep their defaults.")
            print_failures(log)

    def _measure_network(self, log: Log) -> None:
        """Build the network with what was found, and time it on the device of this machine."""
        try:
            self.measured_latency = self.tasks[0].network.seconds(log)
        except TilewrightError as error:
            if self.verbose:
                say(f"The network as a whole was not timed: {error}")
            return
        total = self.estimated_latency()
        estimate = "" if total is None else f" (estimated: {total * 1e3:.3f} ms)"
        if self.verbose:
            say(f"Measured end-to-end latency: {self.measured_latency * 1e3:.3f} ms{estimate}")


def _gradient(alpha: float | None, beta: float | None, window: int | None) -> Gradient | None:
    given = {"alpha": alpha, "beta": beta, "window": window}
    given = {name: value for name, value in given.items() if value is not None}
    return Gradient(**given) if given else None  # type: ignore[arg-type]


def _trials(log: Log, task: Task) -> int:
    """How often candidates were measured here; leaders that were timed again count once."""
    return sum(not r.result.final and not r.is_imported for r in log.query(task_id(task)))


def _weights(tasks: Sequence[SearchTask], given: Sequence[float] | None) -> list[float]:
    if given is None:
        return [1.0] * len(tasks)
    weights = list(given)
    if len(weights) != len(tasks) or not all(isinstance(w, Real) and w >= 0 for w in weights):
        raise SpaceError(
            f"TaskScheduler(task_weights={weights})", f"not {len(tasks)} numbers from 0",
            "Pass what extract_tasks returns.",
        )  # fmt: skip
    return weights


def __getattr__(name: str) -> Any:
    way = "Tune for longer: the search goes on around the fastest by itself."
    raise absent("auto_scheduler.task_scheduler", name, {"droplet_exploitation": way})
