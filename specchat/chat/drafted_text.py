"""A text that a model reads, with the drafters that follow it; what an engine keeps between two answers.

It knows neither turns nor events.
"""

from dataclasses import dataclass, field, replace

from specchat.chat.plain_baseline import PlainBaseline
from specchat.chat.reference_corpus import ReferenceCorpus
from specchat.chooser.chooser import Chooser, ChooserState, DeviceLoad
from specchat.chooser.costs import Costs
from specchat.chooser.learned_file import LearnedFile
from specchat.drafters.registry import BuiltDrafters
from specchat.engine.decode import Generation, Step
from specchat.engine.drafter import AnswerTask, Drafter
from specchat.engine.joint_passes import JointPasses
from specchat.engine.model import Model
from specchat.profile.keys import Profile
from specchat.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class LoadedModels:
    target: Model
    tokenizer: Tokenizer
    profile: Profile
    costs: Costs
    chooser_state: ChooserState
    reference_corpus: ReferenceCorpus | None = None
    notices: tuple[str, ...] = ()  # about the loaded models, for the first answer of each conversation
    learned_file: LearnedFile | None = None
    joint_passes: JointPasses = field(default_factory=JointPasses)  # of all its texts

    def save_learned(self) -> None:
        """Store what answers have taught about this machine, for the next start."""
        if self.learned_file is not None:
            self.learned_file.save(self.costs, self.chooser_state)


class DraftedText:
    """One text and the drafters that follow it, by variant; the chooser passes outcomes to its own.

    `faults` are those of plugins; they may be added from any thread.
    """

    def __init__(self, models: LoadedModels, built: BuiltDrafters) -> None:
        self.models, self._faults = models, built.faults
        self.chooser = Chooser(built.auto_candidates, models.costs, models.chooser_state)
        self.drafters: dict[str, Drafter] = {**built.drafters, self.chooser.name: self.chooser}
        self.generation = Generation(models.target, (self.chooser,), models.joint_passes)
        self.plain_baseline = PlainBaseline(self._relative_pass_cost)

    def take_faults(self) -> tuple[str, ...]:
        """The faults of plugins, each once."""
        return tuple(self._faults.popleft() for _ in range(len(self._faults)))

    def select_drafters(self, variant: str, task: AnswerTask | None = None) -> None:
        """Let a drafter observe the text from now on, as those of the chooser do; other plugins hear nothing of it."""
        drafter, task = self.drafters[variant], task or AnswerTask()
        for each in self.drafters.values():
            each.start_answer(replace(task, is_selected=each is drafter or drafter is self.chooser))
        if drafter not in (*self.generation.drafters, *self.chooser.drafters.values()):
            self.generation.add_drafter(drafter)

    def set_load(self, waiting_requests: int, *, is_urgent: bool = False) -> None:
        """Draft less while other requests wait for their next step, and nothing while `is_urgent`, for a completion."""
        self.chooser.device_load = DeviceLoad(waiting_requests, is_urgent)

    def close(self) -> None:
        self.generation.close()
        for drafter in self.drafters.values():
            drafter.close()

    def memory_bytes(self) -> dict[str, int]:
        """The bytes that this text holds: its KV cache, and what its drafters keep."""
        own = {id(each): each for each in self.drafters.values() if each is not self.chooser}
        states = sum(drafter.memory_bytes() for drafter in own.values())
        return {"kv_cache": self.models.target.pool.bytes_of(self.generation.cache), "drafters": states}

    def own_part(self, step: Step) -> Step:
        """With the time of its own rows in a pass that it shared with other texts."""
        if not step.other_rows:
            return step
        share = self.models.costs.own_share(len(self.generation.tokens), len(step.tree), step.other_rows)
        return replace(step, verify_seconds=step.verify_seconds * share)

    def _relative_pass_cost(self, rows: int) -> float:
        return self.models.costs.relative_pass_cost(len(self.generation.tokens), rows)
