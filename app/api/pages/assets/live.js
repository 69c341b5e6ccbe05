// Makes pages live: replaces parts of a page by what the server renders.
// Every page works without this script.
"use strict";

const RETRY_MS = 3000;
const PAUSE_MS = 300;
const UNANSWERED = "The service does not answer. What you typed is still here: try again in a moment.";
const TYPED = ".shell main form[method=post]:not([data-upload])";
// Any key may read it, so it tells whether the session goes on.
const OF_A_SESSION = document.currentScript.src.replace(/live\.js$/, "signer.pem");

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

// Replaces a part of a page, but for what somebody typed there.
function replacePart(part, fresh) {
  const focused = part.contains(document.activeElement) && document.activeElement.id;
  for (const field of part.querySelectorAll("input[id]:not([type=hidden])")) {
    const same = fresh.querySelector(`#${CSS.escape(field.id)}`);
    if (same) same.value = field.value;
  }
  part.replaceWith(fresh);
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
}

// Replaces every [data-part] by its namesake on another page,
// and marks the fields whose problem is named there.
function showParts(page) {
  for (const part of document.querySelectorAll("[data-part]")) {
    const fresh = page.getElementById(part.id);
    if (fresh !== null && fresh.outerHTML !== part.outerHTML) replacePart(part, fresh);
  }
  for (const problem of document.querySelectorAll(".problem[id]")) {
    const isWrong = problem.textContent.trim() !== "";
    const described = `[aria-describedby~="${CSS.escape(problem.id)}"]`;
    for (const field of document.querySelectorAll(described)) {
      field.setAttribute("aria-invalid", String(isWrong));
    }
  }
}

// Says at the end of a form why it was not sent, or nothing; with a link, where the session has ended.
function say(form, words, signIn) {
  let line = form.querySelector(":scope > [role=alert].problem");
  if (line === null) {
    line = document.createElement("p");
    line.className = "problem";
    line.setAttribute("role", "alert");
    form.append(line);
  }
  line.textContent = words;
  if (!signIn) return;
  const link = document.createElement("a");
  Object.assign(link, { href: signIn, target: "_blank", textContent: "Sign in in another tab" });
  line.append("The session has ended. ", link, ", then go on here: what you typed is still here.");
}

// Whether a page of the session came; the form says so where none did.
function isAnswered(form, answer) {
  const isOver = answer !== null && answer.redirected;
  const isLost = answer === null || answer.status >= 500;
  say(form, isLost ? UNANSWERED : "", isOver && answer.url.split("?")[0]);
  return !isOver && !isLost;
}

// Until the server has answered what stands in the form, nothing that it said of an earlier form can be sent.
function markStale(isStale) {
  for (const part of document.querySelectorAll("[data-part]")) {
    if (isStale) part.setAttribute("aria-busy", "true");
    else part.removeAttribute("aria-busy");
    for (const button of part.querySelectorAll("button")) button.disabled = isStale;
  }
}

// Sends a form as it stands whenever a field changes,
// and shows the parts that the server renders for it.
function keepLive(form) {
  let timer, request;
  const send = async () => {
    if (request) request.abort();
    request = new AbortController();
    const { signal } = request;
    const body = new URLSearchParams(new FormData(form));
    const isQuery = form.method === "get";
    if (!isQuery) body.set("live", "1");
    const path = form.getAttribute("action") || location.pathname;
    const answer = await fetch(isQuery ? `${path}?${body}` : path, {
      ...(isQuery ? {} : { method: "POST", body }), signal,
    }).catch(() => null);
    if (signal.aborted || !isAnswered(form, answer)) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (signal.aborted) return;
    if (page.querySelector("[data-part]") === null) {
      say(form, (page.querySelector("h1") || page.body).textContent);
      return;
    }
    markStale(false);
    showParts(page);
    if (isQuery) history.replaceState(null, "", `?${body}`);
  };
  form.addEventListener("input", () => {
    clearTimeout(timer);
    if (request) request.abort();
    markStale(true);
    timer = setTimeout(send, PAUSE_MS);
  });
}

// Sends a form only where the session goes on and the service answers:
// another page would take the place of what was typed.
async function keepTyped(event) {
  const form = event.target;
  if (!form.matches(TYPED) || form.dataset.asked === "sent") return;
  event.preventDefault();
  if (form.dataset.asked) return;
  form.dataset.asked = "now";
  const answer = await fetch(OF_A_SESSION, { cache: "no-store" }).catch(() => null);
  form.dataset.asked = isAnswered(form, answer) ? "sent" : "";
  if (form.dataset.asked) form.requestSubmit(event.submitter);
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
  document.addEventListener("submit", keepTyped);
  document.querySelectorAll("[data-logarithm-of]").forEach(slide);
  document.querySelectorAll("form[data-upload]").forEach(upload);
  document.querySelectorAll("[data-text-of]").forEach(readFile);
});
