"""Third-party clients, driven by scripts: `python -m tests.clients.run`. See docs/clients.md.

snippets.py   settings as the documentation has them
world.py      a home, a project and an engine process of their own, and programs that run there
agents.py     clients of `specchat acp`          servers.py   clients of `specchat lsp`
filters.py    editors that pipe a text           run.py       all of them, as a page
http_sdks.py  clients of `specchat serve`         coding_agents.py   those with tools of their own
scripted_host.py, scripted_specchat.py           a model whose answers are fixed
"""
