/** The page: tabs, colours, the API key, and the choice of a model. */

import { keys, request, useKey } from "/static/api.js";
import { BatchView } from "/static/batch.js";
import { announce, el, visible } from "/static/dom.js";
import { ModelView } from "/static/model.js";
import { TagView } from "/static/tag.js";

const TABS = ["tag", "batch", "model"];
const byId = (id) => document.getElementById(id);
const views = {
  tag: new TagView(byId("panel-tag")),
  batch: new BatchView(byId("panel-batch")),
  model: new ModelView(byId("panel-model")),
};

// --- tabs ------------------------------------------------------------------------------------

function showTab(name, { focus = false } = {}) {
  for (const tab of TABS) {
    const chosen = tab === name;
    const button = byId(`tab-${tab}`);
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    byId(`panel-${tab}`).hidden = !chosen;
    if (chosen && focus) button.focus();
  }
  views[name].shown?.();
  document.title = `${name.charAt(0).toUpperCase()}${name.slice(1)} · glocal`;
}

function followAddress() {
  const name = location.hash.slice(1);
  showTab(TABS.includes(name) ? name : "tag");
}

for (const tab of TABS) {
  byId(`tab-${tab}`).addEventListener("click", () => {
    history.replaceState(null, "", `#${tab}`);
    showTab(tab);
  });
}
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const place = TABS.findIndex((tab) => byId(`tab-${tab}`) === document.activeElement);
  const moves = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: TABS.length - 1 };
  if (!(event.key in moves)) return;
  event.preventDefault();
  const next = TABS[(moves[event.key] + TABS.length) % TABS.length];
  history.replaceState(null, "", `#${next}`);
  showTab(next, { focus: true });
});
window.addEventListener("hashchange", followAddress);

// --- light and dark --------------------------------------------------------------------------

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : prefersDark.matches;
}

function nameThemeButton() {
  byId("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("glocal-theme", document.documentElement.dataset.theme);
  nameThemeButton();
});
const stored = localStorage.getItem("glocal-theme");
if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
prefersDark.addEventListener("change", nameThemeButton);
nameThemeButton();

// --- the key ---------------------------------------------------------------------------------

const dialog = byId("key-dialog");

keys.addEventListener("needed", (event) => {
  byId("key-button").hidden = false;
  byId("key-problem").textContent = event.detail.tried ? "The server does not accept this key." : "";
  if (!dialog.open) dialog.showModal();
  byId("key").focus();
});
byId("key-button").addEventListener("click", () => dialog.showModal());
byId("key-cancel").addEventListener("click", () => dialog.close("cancel"));
dialog.addEventListener("close", () => {
  if (dialog.returnValue !== "use") return;
  useKey(byId("key").value.trim());
  byId("key").value = "";
  start();
});

// --- models ----------------------------------------------------------------------------------

const picker = byId("model");

async function start() {
  const banner = byId("banner");
  try {
    const { models } = await request("/v1/models");
    banner.hidden = true;
    picker.replaceChildren(...models.map((model) => el("option", { value: model.id, text: visible(model.name || model.id) })));
    const wanted = sessionStorage.getItem("glocal-model");
    if (models.some((model) => model.id === wanted)) picker.value = wanted;
    picker.closest("label").hidden = models.length < 2;
    const choose = () => {
      sessionStorage.setItem("glocal-model", picker.value);
      const model = models.find((found) => found.id === picker.value);
      for (const view of Object.values(views)) view.useModel(model);
      views[TABS.find((tab) => !byId(`panel-${tab}`).hidden)].shown?.();
    };
    picker.onchange = choose;
    choose();
  } catch (error) {
    banner.hidden = false;
    banner.replaceChildren(
      el("span", { text: error.status === 401 ? "This server needs an API key." : error.message }),
      el("button", {
        class: "plain",
        type: "button",
        text: error.status === 401 ? "Enter the key" : "Try again",
        on: { click: () => (error.status === 401 ? dialog.showModal() : start()) },
      }),
    );
    announce(error.message);
  }
}

followAddress();
start();
