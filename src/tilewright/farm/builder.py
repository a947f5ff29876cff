"""`FarmBuilder`: builds on all builders of a key, behind the same protocol as `LocalBuilder`.

In: `Job`s.  Out: futures of `Built`.  A builder that is lost costs nobody anything: its build is
made again by another one.  A failure that may be the machine's counts when a second builder
confirms it.  What travels is the candidate as data; builders run the same version of Tilewright.
Read next: `fleet.py`, `builds.py`, `board.py` (the other side).
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from tilewright.base.errors import DeviceError
from tilewright.farm import builds
from tilewright.farm.device_link import DeviceLink
from tilewright.farm.fleet import STATUS_HINT, Fleet, Notice, Order
from tilewright.farm.network import soon
from tilewright.measure.jobs import Built, Cause, Job
from tilewright.targets.target import Target


class FarmBuilder(Fleet):
    """Builds on the builders that the tracker at host:port has for `key`, those that were started
    with `--builders`.

    timeout: seconds for one build; the rest: see `FarmRunner`
    Raises DeviceError where the tracker cannot be reached or refuses the certificate.
    """

    def __init__(
        self,
        key: str,
        host: str | None = None,
        port: int | None = None,
        *,
        timeout: float = 10.0,
        priority: int = 1,
        certificates: str | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        if not 0 < timeout <= 86_400:
            raise DeviceError(
                f"FarmBuilder(timeout={timeout})", "it must be positive, and a day at most",
                "Try 10.",
            )  # fmt: skip
        self.timeout = timeout
        super().__init__(key, host, port, priority, certificates, on_notice)

    @property
    def n_parallel(self) -> int:
        """Twice as many as there are builders: each has its next one when it is done."""
        return 2 * super().n_parallel

    def submit(self, job: Job) -> Future[Built]:
        """Build one candidate on whatever builder gets free."""
        return self._submit(job, job.full_target)

    def probe(self, target: Target) -> None:
        """Build a small kernel.  Builders that were left out get another chance.

        Raises DeviceError where that fails, too.
        """
        soon(self._forgive()).result()
        built = self._submit(None, target).result()
        if built.error is not None:
            raise DeviceError(f"builders of {self.key}", built.message, STATUS_HINT)

    def __enter__(self) -> FarmBuilder:
        return self

    def _submit(self, job: Job | None, target: Target) -> Future[Built]:
        future: Future[Built] = Future()
        try:
            asked = builds.asked(job, target, self.timeout)
        except DeviceError as error:
            future.set_result(Built(None, "compile", str(error)))
            return future

        async def work(device: str, link: DeviceLink) -> Built:
            answer = await link.build(asked)
            if job is None and not answer.artifact:
                return Built()
            return builds.built(answer, target)

        order = Order(work, future, "", _is_doubtful, _given_up, _agreed)
        soon(self._add(order, twice=job is not None))
        return future


def _is_doubtful(built: Built) -> bool:
    return built.error is not None and built.cause != "candidate"


def _given_up(why: str, suspected: bool) -> Built:
    cause: Cause = "killed" if suspected else "machine"
    return Built(None, "compile", why, cause=cause)


def _agreed(first: Built, second: Built) -> Built:
    """Two builders that fail alike are right."""
    if first.error == second.error and "machine" not in (first.cause, second.cause):
        return replace(second, cause="candidate")
    return second
