"""What a case is."""

from dataclasses import dataclass

from tests.api.jobs import Written


@dataclass(frozen=True)
class Case:
    """The same job wrong and right. `server` is what the API server says, where the schema and not a rule refuses."""

    wrong: Written
    right: Written
    sentence: str
    server: str = ""
    wrong_name: str = "mnist"
    right_name: str = "mnist"

    def __str__(self) -> str:
        return self.sentence.partition(", but")[0]
