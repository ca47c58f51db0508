"""Write one hospital's partition of scikit-learn's digits to /data/digits.csv.

Runs in the agent's image before the agent does: `python - HOSPITAL HOSPITALS EXAMPLES`, where
HOSPITAL counts from 1.
"""

import csv
import os
import sys
from pathlib import Path

from sklearn.datasets import load_digits

FOLDER = Path("/data")
GROUP = 10001  # FEDDC_DATA_GROUP: the group that may read the data


def main() -> None:
    """Deal the images out in turn, each with a patient token that tests can search for."""
    hospital, hospitals, examples = map(int, sys.argv[1:])
    images, labels = load_digits(return_X_y=True)
    own = range(hospital - 1, hospitals * examples, hospitals)
    file = FOLDER / "digits.csv"
    with file.open("w", newline="") as sink:
        table = csv.writer(sink)
        table.writerow(["patient_token", *(f"pixel{n:02}" for n in range(64)), "label"])
        for n in own:
            table.writerow([f"PATIENT-{n:04}", *(images[n] / 16), labels[n]])
    for path, mode in ((FOLDER, 0o750), (file, 0o640)):
        os.chown(path, 0, GROUP)
        path.chmod(mode)


if __name__ == "__main__":
    main()
