"""A text of the product on the screen, in the language of the user. Answers and questions are other widgets."""

from textual.widgets import Static

from specchat.own_text import translated


class OwnLabel(Static):
    def render(self):  # noqa: ANN201 (Textual has several names for what a widget draws)
        return translated(self.content) if isinstance(self.content, str) else super().render()
