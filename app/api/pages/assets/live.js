// Makes pages live: replaces parts of a page by what the server renders.
// Every page works without this script.
"use strict";

const RETRY_MS = 3000;
const PAUSE_MS = 300;

async function rendered(answer) {
  const isPage = (answer.headers.get("Content-Type") || "").startsWith("text/html");
  if (answer.redirected || !isPage) {
    location.reload();
    return null;
  }
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

async function refresh(part) {
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const page = await rendered(answer);
  if (page === null) return null;
  if (!answer.ok) {
    location.reload();
    return null;
  }
  const fresh = page.getElementById(part.id);
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

// Replaces every [data-part] by its namesake on another page,
// and marks the fields whose problem is named there.
function showParts(page) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(part.id);
    if (fresh !== null && fresh.outerHTML !== part.outerHTML) part.replaceWith(fresh);
  }
  for (const problem of document.querySelectorAll(".problem[id]")) {
    const isWrong = problem.textContent.trim() !== "";
    const described = `[aria-describedby~="${CSS.escape(problem.id)}"]`;
    for (const field of document.querySelectorAll(described)) {
      field.setAttribute("aria-invalid", String(isWrong));
    }
  }
}

// Sends a form as it stands whenever a field changes,
// and shows the parts that the server renders for it.
function keepLive(form) {
  let timer, request;
  const send = async () => {
    if (request) request.abort();
    request = new AbortController();
    const body = new URLSearchParams(new FormData(form));
    const isQuery = form.method === "get";
    if (!isQuery) body.set("live", "1");
    const path = form.getAttribute("action") || location.pathname;
    try {
      const answer = await fetch(isQuery ? `${path}?${body}` : path, {
        ...(isQuery ? {} : { method: "POST", body }), signal: request.signal,
      });
      const page = await rendered(answer);
      if (page !== null) showParts(page);
      if (isQuery) history.replaceState(null, "", `?${body}`);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(send, PAUSE_MS);
  });
}

// A slider that sets a number field on a logarithmic scale, to two significant digits.
function slide(slider) {
  const field = document.getElementById(slider.dataset.logarithmOf);
  const follow = () => {
    if (Number(field.value) > 0) slider.value = Math.log10(Number(field.value));
  };
  slider.hidden = false;
  follow();
  field.addEventListener("input", follow);
  slider.addEventListener("input", () => {
    field.value = String(Number((10 ** Number(slider.value)).toPrecision(2)));
  });
}

// Sends a form with a file and shows how much was sent, then the parts that the server renders.
function upload(form) {
  const [bar, status] = [form.querySelector("progress"), form.querySelector("[role=status]")];
  const button = form.querySelector("button");
  const end = (words) => {
    button.disabled = false;
    bar.hidden = true;
    status.textContent = words;
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const request = new XMLHttpRequest();
    request.upload.onprogress = ({ loaded, total }) => {
      bar.value = loaded / total;
      const percent = Math.floor((100 * loaded) / total);
      status.textContent = loaded < total ? `${percent} % sent` : "Sent. The rows are checked.";
    };
    request.onerror = () => end("The upload did not arrive. Nothing was stored; try again.");
    request.onload = () => {
      end("");
      const there = new URL(request.responseURL);
      // the sign-in page, which says that nothing was stored; the prefix of a proxy is no part of its next page
      const prefix = there.pathname.replace(/\/ui\/sign-in$/, "");
      const page = location.pathname.slice(prefix.length);
      if (there.pathname !== location.pathname) location.assign(`${there}&next=${page}`);
      else showParts(new DOMParser().parseFromString(request.responseText, "text/html"));
    };
    request.open("POST", location.pathname);
    request.send(new FormData(form));
    button.disabled = true;
    bar.hidden = false;
    bar.value = 0;
  });
}

// Puts the text of a chosen file into a field.
function readFile(chooser) {
  chooser.hidden = false;
  chooser.addEventListener("change", async () => {
    const [file] = chooser.files;
    if (file) document.getElementById(chooser.dataset.textOf).value = await file.text();
  });
}

function switchTheme() {
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : prefersDark;
  root.dataset.theme = isDark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

function showThemeButton() {
  const button = document.querySelector("[data-theme-switch]");
  button.hidden = false;
  button.addEventListener("click", switchTheme);
}

// Brings the link of this page into view, where a strip of links is wider than the screen.
function showCurrentLinks() {
  for (const link of document.querySelectorAll("nav [aria-current]")) {
    link.parentElement.scrollLeft = link.offsetLeft - link.parentElement.offsetLeft;
  }
}

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;

document.addEventListener("DOMContentLoaded", () => {
  showThemeButton();
  showCurrentLinks();
  document.querySelectorAll("[data-events]").forEach(follow);
  for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, showWords);
  document.querySelectorAll("form[data-live]").forEach(keepLive);
  document.querySelectorAll("[data-logarithm-of]").forEach(slide);
  document.querySelectorAll("form[data-upload]").forEach(upload);
  document.querySelectorAll("[data-text-of]").forEach(readFile);
});
