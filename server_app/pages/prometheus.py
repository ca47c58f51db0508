"""Runs as Prometheus metrics: states and counters only, no figures computed from patients."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from .run_view import RunRecord, state_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Family = GaugeMetricFamily | CounterMetricFamily


def metrics_text(runs: Iterable[RunRecord]) -> bytes:
    """Return all metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Runs(list(runs)))
    return bytes(generate_latest(registry))


class _Runs(Collector):
    def __init__(self, runs: list[RunRecord]) -> None:
        self._runs = runs

    def collect(self) -> Iterator[_Family]:
        run, hospital = ["run"], ["run", "hospital"]
        state = GaugeMetricFamily(
            "feddc_run_state", "1 for the run's state.", labels=[*run, "state"]
        )
        legs = GaugeMetricFamily("feddc_run_legs", "Legs of the run.", labels=run)
        done = GaugeMetricFamily("feddc_run_legs_done", "Legs that have ended.", labels=run)
        lost = CounterMetricFamily("feddc_run_lost_chains", "Chains never aggregated.", labels=run)
        sent = CounterMetricFamily("feddc_bytes", "Bytes of answers (up), requests (down).",
                                   labels=[*hospital, "direction"])  # fmt: skip
        missing = CounterMetricFamily("feddc_missing_legs", "Legs without answer.", labels=hospital)
        parked = GaugeMetricFamily("feddc_parked", "1 if an answer is overdue.", labels=hospital)
        seen = GaugeMetricFamily("feddc_last_answer_seconds", "Unix time.", labels=hospital)
        for record in self._runs:
            name, history = record.name, record.history
            state.add_metric([name, state_of(history)], 1)
            legs.add_metric([name], history.legs)
            done.add_metric([name], history.done)
            lost.add_metric([name], history.lost_chains)
            for who, one in history.hospitals.items():
                sent.add_metric([name, who, "up"], one.bytes_up)
                sent.add_metric([name, who, "down"], one.bytes_down)
                missing.add_metric([name, who], one.missing)
                parked.add_metric([name, who], int(one.is_parked))
                if one.last_seen is not None:
                    seen.add_metric([name, who], one.last_seen)
        yield from (state, legs, done, lost, sent, missing, parked, seen)
