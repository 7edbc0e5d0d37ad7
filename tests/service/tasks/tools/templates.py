"""Chat templates that have calls of tools written in the ways of several families of models."""

BEGINNING = "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}"
END = "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
SAID = "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"

# As Hermes, Qwen 2.5 and Granite have it.
MARKED = (
    BEGINNING + "{% if not message.tool_calls %}" + SAID + "{% else %}<|im_start|>assistant"
    "{% if message.content %}{{ '\n' + message.content }}{% endif %}"
    "{% for call in message.tool_calls %}{% set call = call.function %}"
    """{{ '\n<tool_call>\n{"name": "' + call.name + '", "arguments": ' }}{{ call.arguments | tojson }}"""
    "{{ '}\n</tool_call>' }}{% endfor %}<|im_end|>\n{% endif %}" + END
)
# As Qwen 3 has it.
THOUGHT = "{{ '<think>\n\n</think>\n\n' }}"
THINKING = MARKED.replace(SAID, SAID.replace("{{ message.content }}", THOUGHT + "{{ message.content }}"))
THINKING = THINKING.replace("<|im_start|>assistant{% if", "<|im_start|>assistant\n" + THOUGHT + "{% if")
# As Llama 3.2 has it.
WHOLE = (
    BEGINNING + "{% if message.role == 'tool' %}<|im_start|>ipython\n{{ message.content }}<|im_end|>"
    "{% elif not message.tool_calls %}" + SAID + "{% else %}"
    "{% if message.tool_calls | length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    "{% set call = message.tool_calls[0].function %}<|im_start|>assistant\n"
    """{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eom|>{% endif %}""" + END
)
# As SmolLM 3 has it, which explains to the model how to call, and leaves calls out of conversations.
EXPLAINED = (
    """{% if tools %}Call as <tool_call>{"name": …}</tool_call>: {{ tools | tojson }}{% endif %}"""
    "{% for message in messages %}" + SAID + END
)
# As DeepSeek and Mistral have it, by special tokens, which are not part of an output's text.
SPECIAL = MARKED.replace("<tool_call>", "<s>")
# With the calls' ids.
NUMBERED = MARKED.replace("""{{ '}\n</tool_call>' }}""", """{{ ', "id": "' + message.tool_calls[0].id + '"}' }}""")
