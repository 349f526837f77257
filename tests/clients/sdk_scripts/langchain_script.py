"""The packages of langchain for three APIs against `specchat serve`."""

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama, OllamaLLM
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel
from steps import ADDRESS, QUESTION, TOKEN, attempt


class City(BaseModel):
    name: str
    is_capital: bool


headers = {"headers": {"Authorization": f"Bearer {TOKEN}"}}
ours = {"model": "embedded", "base_url": f"{ADDRESS}/v1", "api_key": TOKEN, "max_retries": 0, "max_tokens": 200}
models = {
    "ChatOpenAI": ChatOpenAI(**ours),
    "ChatOpenAI by responses": ChatOpenAI(**ours, use_responses_api=True),
    "ChatAnthropic": ChatAnthropic(model="embedded", base_url=ADDRESS, api_key=TOKEN, max_retries=0, max_tokens=200),
    "ChatOllama": ChatOllama(model="embedded", base_url=ADDRESS, client_kwargs=headers, num_predict=200),
}


def said(message) -> str:
    assert message.text
    return f"{len(message.text)} characters"


def filled(model, **how):
    made = model.with_structured_output(City, **how).invoke("Paris is the capital of France.")
    assert isinstance(made, City), made
    return made.model_dump_json()


def called(model):
    [call] = model.bind_tools([City], tool_choice="any").invoke("Paris").tool_calls
    return call["name"], sorted(call["args"])


def summed(pieces):
    first, *others = pieces
    return said(sum(others, first))


for name, model in models.items():
    attempt(f"`{name}`: `invoke`", lambda model=model: said(model.invoke(QUESTION)))
    attempt(f"`{name}`: `stream`", lambda model=model: summed(model.stream(QUESTION)))
    attempt(f"`{name}`: `with_structured_output`", lambda model=model: filled(model))
    if name != "ChatOllama":  # it sends no `tool_choice`
        attempt(f"`{name}`: `bind_tools`", lambda model=model: called(model))
attempt("`ChatOpenAI`: by a call", lambda: filled(models["ChatOpenAI"], method="function_calling"))
attempt("`OpenAI`: `invoke`", lambda: len(OpenAI(**ours).invoke("import json")))
ollama = OllamaLLM(model="embedded", base_url=ADDRESS, client_kwargs=headers, num_predict=50)
attempt("`OllamaLLM`: `invoke`", lambda: len(ollama.invoke(QUESTION)))
