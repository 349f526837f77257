"""Text to tokens and back: tokenizers, chat templates, streamed answers, grammars. Knows no weight and no request.

token_bytes        a vocabulary piece → bytes
chat_template      messages → prompt text, by the model's Jinja template
template_sandbox   what a chat template may call, each operator, filter and method with its charge
template_budget    memory and time of a chat template, as units that are spent
chat_format        how a model writes conversations: its template, thoughts, tools and their calls
control_tokens     the control tokens of a vocabulary; in user text they are escaped
token_encoder      text → token ids, in a limited time
tokenizer          text → token ids and back, from a folder
vocabulary         whether two models have the same tokens
detokenize         streamed token ids → text, with stop strings
thinking           how a family of models marks its thinking; text → thinking and text
thinking_budget    a limit for the thinking → a grammar over tokens
tool_formats       how the families of models write tool calls, as a table
tool_calls         streamed text → text and tool calls
answer_stream      streamed token ids → thinking, text and tool calls
llguidance_grammar JSON schema or regular expression → a grammar over tokens
closed_schema      a JSON schema as a grammar follows it
tool_grammar       the tools that must be called, or may be → a grammar over tokens
"""
