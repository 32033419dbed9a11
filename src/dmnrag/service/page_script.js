// What HTML alone cannot do on the page: open a source, keep the focus while an answer grows, keep the answer in the
// address, and carry a question over to the other language. No text is ever written as HTML here.
"use strict";

const QUESTION = "dmnrag-question";
let opener = null; // what opened the source: {panel, number, place}
let focused = null; // the last focused control within an answer, as the same

function describe(control) {
  const panel = control.closest(".panel");
  const alike = [...panel.querySelectorAll("button[data-source]")];
  return { panel: panel.id, place: alike.indexOf(control) };
}

function find(described) {
  const panel = document.getElementById(described.panel);
  return panel ? panel.querySelectorAll("button[data-source]")[described.place] : undefined;
}

function dialog() {
  let made = document.getElementById("source");
  if (!made) {
    made = document.createElement("dialog");
    made.id = "source";
    made.setAttribute("aria-labelledby", "source-title");
    const close = document.createElement("button");
    close.type = "button";
    close.className = "close";
    close.textContent = document.documentElement.dataset.language.startsWith("zh") ? "关闭" : "Close";
    close.addEventListener("click", () => made.close());
    const body = document.createElement("div");
    body.className = "body";
    body.tabIndex = 0; // a long excerpt is scrolled by keyboard
    made.append(close, body);
    made.addEventListener("click", (event) => event.target === made && made.close()); // beside it
    made.addEventListener("close", () => opener && find(opener)?.focus());
    document.body.append(made);
  }
  return made;
}

function open(control) {
  const number = control.dataset.source;
  const template = control.closest(".panel").querySelector(`template[data-source="${CSS.escape(number)}"]`);
  if (!template) return;
  opener = describe(control);
  const shown = dialog();
  const body = shown.querySelector(".body");
  body.replaceChildren(template.content.cloneNode(true));
  body.querySelector("h2").id = "source-title";
  shown.showModal();
  body.scrollTop = 0;
}

document.addEventListener("click", (event) => {
  const control = event.target.closest?.(".panel button[data-source]");
  if (control) open(control);
  const language = event.target.closest?.("#head nav a");
  const typed = document.querySelector("#question textarea")?.value;
  if (language && typed) sessionStorage.setItem(QUESTION, typed);
});

document.addEventListener("focusin", (event) => {
  focused = event.target.closest?.(".panel button[data-source]") ? describe(event.target) : null;
});

// The answer is written anew with each piece: the control that had the focus is another one then.
function keepFocus() {
  if (focused && document.activeElement === document.body) find(focused)?.focus({ preventScroll: true });
}

function keepAddress() {
  const answers = [...document.querySelectorAll(".panel [data-answer]")];
  const ids = answers.map((answer) => answer.dataset.answer).filter(Boolean);
  if (!ids.length || answers.some((answer) => answer.dataset.done !== "true")) return;
  const query = ids.map((id) => `answer=${encodeURIComponent(id)}`).join("&");
  const address = `${location.pathname}?${query}`;
  if (address !== location.pathname + location.search) history.replaceState(null, "", address);
}

function keepLinks() {
  for (const link of document.querySelectorAll("#head nav a")) link.search = location.search;
}

// The library names the browser's language there; the page's own is what it is written in.
function keepLanguage() {
  const root = document.documentElement;
  if (root.lang !== root.dataset.language) root.lang = root.dataset.language;
}

function announce() {
  for (const id of ["status", "banner"]) {
    const region = document.getElementById(id);
    if (region && !region.hasAttribute("role")) region.setAttribute("role", "status");
  }
}

function bringQuestion() {
  const typed = sessionStorage.getItem(QUESTION);
  const box = document.querySelector("#question textarea");
  const opening = new URLSearchParams(location.search).has("answer") && !document.querySelector(".panel .answer");
  if (!typed || !box || opening) return; // an answer that is shown again brings its own question first
  sessionStorage.removeItem(QUESTION);
  box.value = typed;
  box.dispatchEvent(new Event("input", { bubbles: true }));
}

new MutationObserver(() => {
  keepFocus();
  keepAddress();
  keepLinks();
  announce();
  bringQuestion();
  keepLanguage();
}).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: ["lang"] });
