"""A plugin that adds `specchat train`: heads and small draft models for a target, on the target's own answers.

command                the command line
train_head             the pipeline: answers, hidden states, training, comparison, installation
training_prompts       questions from stored conversations, folders or JSON lines; held-out split
frozen_target          the target: answers, hidden states, embeddings, output matrix
write_answer           one answer, decoded by the engine
target_answers         the answers, generated once and stored in a file
feature_cache          the hidden states, computed once and stored in shards
training_batches       packed rows and the plan of batches
distillation_batches   batches with the hidden states and logits of the target
distillation_losses    the loss of each kind of head
chunked_cross_entropy  the loss over a vocabulary without its matrix of logits
trainable_llama, trainable_heads   the networks, under published names
unrolled_attention     attention of a head that is unrolled over several steps
head_kinds             how each kind starts, resumes, learns and is exported
eagle_initialization, load_trained, export_weights, draft_models   used by head_kinds
trainer, optimizers    the training loop with checkpoints; Muon and AdamW
distributed            several processes under torchrun
compare_heads          acceptance of two heads on held-out questions, with an interval
model_card             README and config.json of a finished head
fingerprint, progress_bar   identity of a target; bars on stderr
"""

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_commands() -> list[Extension]:
    """What every process of specchat asks; the command is imported when it runs."""
    description = "Train a head for your model on your questions; nothing leaves this machine."
    return [Extension("train", description, "specchat_train.command:train")]
