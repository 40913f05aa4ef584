"""Errors of the program as an exception."""


class KonkordiaError(Exception):
    """What went wrong, where and why; ``hint`` says what to do.

    Attributes
    ----------
    hint : str
        What to do next.
    exit_code : int
        The exit code that the program ``konkordia`` has for it.
    """

    def __init__(self, what: str, hint: str = "", exit_code: int = 70) -> None:
        super().__init__(what, hint, exit_code)
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        what = str(self.args[0])
        return f"{what}\n  hint: {self.hint}" if self.hint else what
