"""Prompts: templates as data files, domain in front or at the rear, a budget in the model's own tokens."""

from dmnrag.prompts.build import build_prompt
from dmnrag.prompts.template import Template, load_template, template_names

__all__ = ["Template", "build_prompt", "load_template", "template_names"]
