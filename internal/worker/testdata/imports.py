import no_such_package.part  # noqa: F401

import millrace


@millrace.transform
def f(text: str) -> str:
    return text
