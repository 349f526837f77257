"""How the embedded models and the heads of the starter model are trained and evaluated. Not part of the wheel.

Uses the plugins that train and that have more heads: `pip install ./plugins/specchat-train ./plugins/specchat-heads`. Tests: `pytest recipes/tests`.

embedded               the stages, from text to the folders of the models
corpus, snippets       documents and pieces of code; training and validation are separate
edit_examples          edits of code by kind, from rename_edits, import_edits, docstring_edits, value_edits,
                       signature_edits and inserted_line_edits, with the words of phrasing
dialogues, smalltalk, quoting, code_questions, reference_passages   conversations
train_tokenizer        the tokenizer
training_rows, row_files   training rows with weights, and their files
induction              initial weights that can copy
target_loss, joint_distillation   the losses of the target and of the students
embedded_models        reads and writes the folders
evaluate, evaluation_questions, evaluation_results, scores, writer   the evaluation
acceptance_by_position, engine_acceptance   acceptance without and with the engine

starter_questions, question_words   the questions for the heads of the starter model
starter_answers        the answers of the starter to many questions at once, and follow-up turns
batched_llama, answer_files   the passes over many rows, and the files of answers
starter_states         the hidden states of stored answers
starter_heads          trains an EAGLE-3 head for the starter on a CPU
fitted_eagle3          the weights with which that begins

stream_training        trains heads on one GPU for a fixed time, on answers that are written meanwhile: the head that
                       is part of specchat
answer_stream, answer_waves   questions without end, and answers to thousands of them at once
answer_store           the answers so far, and batches of them
stream_heads, sharpened_loss   the heads of several shapes, and their loss
stream_evaluation      acceptance on held-out answers, greedy and with shared noise
file_parts             a folder as files of limited size, and back
"""
