"""A conversation: requests in, events out.

request.py, schema_check.py            a request, the required format of its answer, and whether its schema has an end
attachments.py                         attached files in the prompt
request_kinds.py, router.py            the kind of a request, and its drafter
reference_corpus.py, prompt.py         passages of a reference corpus, and the prompt as tokens
tools.py, tool_prompt.py               tools, their calls and results, and how a prompt has them
shortened_text.py                      a long text for a model: its beginning and its end
edit_contract.py                       the form of an answer that is a whole file: its fence, given or by a grammar
drafted_text.py                        a text with the drafters that follow it: what is kept between two answers
running_answer.py, session.py          one answer: prefill, decode, events; a conversation of this process
context_fit.py                         the prompt within the context window: in work with tools, what is shortened
answer_grammar.py                      the grammar of format, thought and calls
answer_parts.py                        text, thought and calls as they stream in
repetition.py                          an answer that repeats itself word for word
fim_request.py                         fill-in-the-middle: the request, which a plugin computes
events.py, transcript.py               the events of an answer, and the stored turns
answer_account.py                      what an answer cost: tokens, its clock, what it waited for, what each drafter did
sum_totals.py                          several answers that are one turn: tries of an edit, rounds of an agent
turn_summary.py                        a turn in one line, and in words
plain_baseline.py                      how long plain decoding would have taken: the baseline of "x plain"
step_records.py                        the steps of a turn, for display
"""
