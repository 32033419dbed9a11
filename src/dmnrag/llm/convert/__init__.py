"""ChatGLM2-6B and Baichuan2-7B-Chat, whose own code no longer runs, as folders of stock transformers classes.

`convert_checkpoint` converts a model, `convert_adapter` a LoRA adapter that was trained on the original.
"""

from dmnrag.llm.convert.adapter import convert_adapter
from dmnrag.llm.convert.folder import Converted, convert_checkpoint

__all__ = ["Converted", "convert_adapter", "convert_checkpoint"]
