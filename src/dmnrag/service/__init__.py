"""The service: HTTP API, OpenAI-compatible endpoints and web page over one index and one LLM.

`answering` is the one way from a question to an answer; API and page show what it yields (`events`) and add nothing.
"""
