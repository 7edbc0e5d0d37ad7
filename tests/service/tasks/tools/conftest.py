from __future__ import annotations

import re

from model.package.chat import compiled, literals
from service.tasks.tools.call_form import CallForm
from service.tasks.tools.syntax import CallSyntax
from service.tasks.tools.trial import Trial

SPECIAL_TOKENS = re.compile(r"<\|im_start\|>|<\|im_end\|>|<\|eom\|>|<s>")


def syntax_of(template: str) -> CallSyntax | None:
    """Return the syntax that a template shows."""
    trial = Trial(compiled(template), {}, takes_tools=True)
    return CallSyntax.of(trial, CallForm.of(trial), literals(template), SPECIAL_TOKENS)
