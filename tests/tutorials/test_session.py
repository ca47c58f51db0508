"""What a tutorial shows must be what its commands print."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tutorials.session import Session, Step, session, steps

PAGE = """# A page

## Begin

```python
# one/made.py
print("made")
```

```console
$ echo /home/you/x and \\
  more
/home/you/x and more
$ read answer; echo "said $answer"
said y
```

```python
2 + 3
```

```text
5
```
"""


@pytest.fixture
def reader() -> Iterator[Session]:
    with session("/home/you/x", points=2) as made:
        yield made


def test_a_page_is_a_list_of_files_commands_and_cells(tmp_path: Path, reader: Session) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    made = steps(page)
    assert [(step.kind, step.heading) for step in made] == [
        ("file", "Begin"), ("command", "Begin"), ("command", "Begin"), ("cell", "Begin"),
    ]  # fmt: skip
    (reader.folder / "one").mkdir()
    for step in made:
        reader.do(step)
    assert reader.run("python one/made.py") == "made\n"


def test_commands_share_a_shell_and_failures_are_told(reader: Session) -> None:
    reader.run("ID=7; sleep 100 &")
    assert reader.run("echo $ID; kill $(jobs -p)") == "7\n"
    with pytest.raises(AssertionError, match="exit code 3"):
        reader.run("sh -c 'exit 3'")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\ntwo\n", "one\ntwo\n"),
        ("one\n…\nfour\n", "one\ntwo\nthree\nfour\n"),
        ("a … d\n", "a b c d\n"),
        ("test  85.5 % (all)\n", "test 87.4 % (all)\n"),
        ("loss 0.51, 3 legs\n", "loss 0.52, 3 legs\n"),
        ("in 3.1 s, 12 kB\n", "in 77 s, 9.9 MB\n"),
        ("20260101-115900-1a2b3c runs\n", "20261118-090000-ffffff runs\n"),
        ("", "whatever\n"),
    ],
)
def test_what_may_differ(reader: Session, shown: str, printed: str) -> None:
    assert reader.difference(shown, printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\nthree\n", "one\ntwo\nthree\n"),
        ("one\n", "one\ntwo\n"),
        ("one\ntwo\n", "one\n"),
        ("test 85.5 %\n", "test 89.4 %\n"),
        ("loss 0.51\n", "loss 0.55\n"),
        ("3 legs\n", "4 legs\n"),
        ("…\nfour\n", "five\n"),
    ],
)
def test_what_may_not(reader: Session, shown: str, printed: str) -> None:
    assert reader.difference(shown, printed)


def test_a_look_is_repeated_until_it_shows_the_page_s(reader: Session) -> None:
    reader.run("(sleep 1; echo there > late) & touch late")
    reader.do(Step("", "command", "cat late", "there\n"))
