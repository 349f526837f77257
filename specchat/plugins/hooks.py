"""The twelve hooks that a plugin may implement. Each returns a list of extensions.

A plugin is a module (or an object) with functions of these names under `@hookimpl`, named by an entry point:

    [project.entry-points.specchat]
    counting = "specchat_counting"

Every process of specchat calls the hooks, also processes that must start in a tenth of a second: the module must not
import anything slow, and above all not torch. The object of an extension is imported where it is used.
"""

from collections.abc import Sequence

import pluggy

from specchat.plugins.extension import Extension

ENTRY_POINT_GROUP = "specchat"
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)
hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)


@hookspec
def register_drafters() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Drafters. The name is a variant: for `--variant`, `/variant` and the keys of a profile.

    The object is `(specchat.drafters.registry.DraftingResources) -> specchat.engine.drafter.Drafter | None`. The engine
    process calls it for every conversation; None means that the loaded models do not allow it. No drafter can change
    the text, but one that declares `drafts_with_models` is responsible for that itself.
    """


@hookspec
def register_heads() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Kinds of trained heads. The name is the kind, under which `DraftingResources.heads` has the loaded head.

    The object is `(specchat.drafters.heads.head_checkpoint.HeadCheckpoint) -> specchat.drafters.heads.spec.HeadSpec |
    None`: None for a checkpoint of another kind. It is asked before the built-in formats, which are less specific. The
    `network` of the spec makes a `specchat.drafters.heads.draft_head.DraftHead`.
    """


@hookspec
def register_decoding_forms() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Ways to decode networks of transformers that do not decode over our KV cache: in chains, or plainly.

    The object is `(transformers.PreTrainedModel, int | None, specchat.forward.batch.BatchLimits) ->
    specchat.forward.transformers.transformers_model.TransformersModel`: the network, the maximum length in tokens, and
    the limits of a pass. It serves where its passes agree with one pass over a whole text, and where our own do not.
    """


@hookspec
def register_network_quantizers() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What quantizes the weights of networks of transformers while they are loaded. The first one serves.

    The object is `(str, torch.device, Path) -> specchat.weights.transformers_files.NetworkQuantization`: the format of
    `--weights`, the device, and the folder of the network. `from_pretrained` takes what it returns.
    """


@hookspec
def register_gguf_networks() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What reads GGUF files of networks that transformers computes, and converts any GGUF file. The first one serves.

    The object is a `specchat.weights.gguf.gguf_conversion.NetworkReader`.
    """


@hookspec
def register_completers() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What completes gaps and whole prompts, for plugins that serve editors and programs. The first one serves.

    The object is `(specchat.chat.drafted_text.LoadedModels, Mapping[str, specchat.engine.drafter.Drafter]) ->
    specchat.host.engine_interface.Completer`. The engine process calls it once for loaded models.
    """


@hookspec
def register_sketch_mergers() -> Sequence[Extension]:  # type: ignore[empty-body]
    """What merges sketches, code with gaps for what stays, into files. The first one serves.

    The object is `() -> specchat.edit.sketch.SketchMerger`.
    """


@hookspec
def register_servers() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Servers that answer instead of models of this machine: `backend = NAME` under `[models]`, with a `url`.

    The object is `(specchat.profile.keys.Profile, Callable[[specchat.chat.events.Event], None]) ->
    specchat.host.engine_interface.Engine`: it connects, and reports progress.
    """


@hookspec
def register_commands() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Commands such as `specchat ask`. The object is a `click.Command`; the name follows `specchat`."""


@hookspec
def register_slash_commands() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Slash commands of all front ends; the name has lowercase letters only, without the slash.

    The object is `(specchat.app.chat_state.ChatState, str) ->
    specchat.app.chat_state.CommandResult`; it gets the conversation and the text after the name. Raise
    `specchat.errors.UsageError` with one line of text for an error of the user.
    """


@hookspec
def register_context_loaders() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Loaders that attach `@NAME:REST` to a question, such as `@clip:` or `@issue:12`; at least two characters.

    The object is `(str) -> str`: the text after the colon, and the text to attach. Raise `specchat.errors.InputError`
    with one line of text when there is none.
    """


@hookspec
def register_tool_sources() -> Sequence[Extension]:  # type: ignore[empty-body]
    """Sources of tools for the agent, and of prompts and texts that a user names; lowercase letters only.

    The object is `(specchat.app.tool_sources.SourceRequest) -> specchat.app.tool_sources.ToolSource`: it starts nothing
    yet. Each front end has its own, and closes it. Calls of its tools are asked about as those of our own are.
    """
