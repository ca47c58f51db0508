"""An evaluation as text for people: counts, figures with their intervals, what is missing."""

from .held_out_evaluation import HeldOutEvaluation
from .intervals import Estimate

_WIDTH = 28
_CORNER = "true \\ predicted"


def evaluation_text(title: str, found: HeldOutEvaluation) -> str:
    """Describe an evaluation in a few lines."""
    lines = [f"{title}: {found.examples} held-out examples"]
    if found.examples:
        lines += _confusion(found)
        rows = {
            "accuracy": _estimate(found.accuracy),
            "balanced accuracy": _estimate(found.balanced_accuracy),
        }
        for one in found.by_class:
            of = f" of {one.name}" if len(found.classes) > 2 else ""
            rows[f"sensitivity{of}"] = _estimate(one.sensitivity)
            rows[f"specificity{of}"] = _estimate(one.specificity)
            rows[f"AUC{of}"] = _estimate(one.auc)
            rows[f"predicted − observed{of}"] = (
                f"{one.predicted_minus_observed:+.3f}  (standard deviation by chance "
                f"{one.predicted_minus_observed_sd:.3f})"
            )
        rows["Brier score"] = "–" if found.brier is None else f"{found.brier:.3f}"
        lines += [f"  {name:{_WIDTH}} {value}" for name, value in rows.items()]
    lines += [f"  note: {note}" for note in found.notes]
    return "\n".join(lines)


def _confusion(found: HeldOutEvaluation) -> list[str]:
    """Return the confusion matrix: a line for each true class, a column for each prediction."""
    width = max(len(_CORNER), *map(len, found.classes))
    columns = [max(len(name), 5) for name in found.classes]
    head = "  ".join(f"{name:>{w}}" for name, w in zip(found.classes, columns, strict=True))
    lines = [f"  {_CORNER:{width}}  {head}"]
    for name, row in zip(found.classes, found.confusion, strict=True):
        cells = "  ".join(f"{count:>{w}}" for count, w in zip(row, columns, strict=True))
        lines.append(f"  {name:{width}}  {cells}")
    return lines


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return f"{estimate.value:.3f}  (95 % interval {estimate.low:.3f} to {estimate.high:.3f})"
