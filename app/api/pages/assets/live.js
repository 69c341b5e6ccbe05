// Makes pages live: replaces a part of a page by what the server renders. Every page works without this script.
"use strict";

const RETRY_MS = 3000;

async function refresh(part) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!answer.ok || answer.redirected) {
    location.reload();
    return null;
  }
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
  part.replaceWith(fresh);
  return fresh;
}

function follow(part) {
  const source = new EventSource(part.dataset.events);
  source.onmessage = async () => {
    const fresh = await refresh(part);
    if (fresh === null) {
      source.close();
    } else {
      part = fresh;
      if (!part.dataset.events) source.close();
    }
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) setTimeout(() => follow(part), RETRY_MS);
  };
}

// Shows the words of a part under the pointer, or with the focus, in the output of its figure.
function showWords(event) {
  const part = event.target.closest("[data-words]");
  const output = part && part.closest("figure").querySelector("output");
  if (output) output.textContent = part.dataset.words;
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

function addThemeButton() {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet";
  button.textContent = "Light or dark";
  button.addEventListener("click", switchTheme);
  document.querySelector("header").append(button);
}

if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");

document.addEventListener("DOMContentLoaded", () => {
  addThemeButton();
  document.querySelectorAll("[data-events]").forEach(follow);
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, showWords);
});
