// Keys, theme, and how current the page is. Everything works without it but for what is live.
(() => {
  "use strict";
  const STALE_MS = 5000;
  const REFRESH_MS = 2000;
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;

  // --- theme --------------------------------------------------------------------------------------
  const systemIsDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const toggleTheme = () => {
    const now = root.dataset.theme || (systemIsDark() ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
    dispatchEvent(new Event("themechange"));
  };

  // --- how current the page is --------------------------------------------------------------------
  const standing = byId("standing");
  let heardAt = performance.now();
  let position = null;
  let refreshedAt = 0;

  // A page of a past moment is sent nothing.
  const isPast = standing === null;
  const show = (state, text) => {
    if (standing.dataset.state !== state) standing.dataset.state = state;
    const element = byId("standing-text");
    if (element.textContent !== text) element.textContent = text;
  };

  const take = (state) => {
    heardAt = performance.now();
    const behind = Math.round(state.behind_seconds);
    const since = state.silent_since?.slice(11, 19);
    const lost = since ? `the broker has not answered since ${since} UTC` : "disconnected from the broker";
    const words = { current: "live", behind: `behind by ${behind} s`, disconnected: lost };
    show(state.state, words[state.state] || state.state);
    if (state.as_of) byId("standing-as-of").textContent = `last event ${state.as_of.slice(11, 19)} UTC`;
    const firing = byId("firing-count");
    firing.hidden = !state.firing;
    if (firing.firstElementChild.textContent !== String(state.firing)) firing.firstElementChild.textContent = state.firing;
    if (state.position !== position) {
      const isFirst = position === null;
      position = state.position;
      if (!isFirst) refresh();
    }
  };

  const refresh = () => {
    const now = performance.now();
    if (now - refreshedAt < REFRESH_MS || document.hidden) return;
    refreshedAt = now;
    document.querySelectorAll("[data-refresh]").forEach((element) => htmx.trigger(element, "refresh"));
  };

  // What is shown stays where a refresh fails, and says so.
  document.addEventListener("htmx:after:request", ({ target, detail }) => {
    if (target.matches?.("[data-refresh]")) byId("not-refreshed").hidden = detail.ctx.response.status < 400;
  });

  if (!isPast) {
    const live = byId("live");
    live.addEventListener("state", (event) => take(JSON.parse(event.detail.data)));
    live.addEventListener("resync", () => location.reload());
    setInterval(() => {
      const silent = performance.now() - heardAt;
      if (silent > STALE_MS) show("stale", `not current: nothing heard for ${Math.round(silent / 1000)} s`);
    }, 1000);
  }

  // --- time: a slider over the past, and steps from mark to mark ----------------------------------
  const TIME_BAR_MS = 60_000;
  const RENEWED_MS = 2_000;
  const SETTLED_MS = 600;
  let going = 0;
  document.addEventListener("input", ({ target }) => {
    if (target.id !== "time-slider") return;
    const moment = new Date(target.value * 1e3).toISOString().slice(0, 19);
    byId("time-field").value = moment;
    target.setAttribute("aria-valuetext", `${moment.slice(0, 10)} ${moment.slice(11)}`);
  });
  document.addEventListener("change", ({ target }) => {
    if (target.id !== "time-slider") return;
    clearTimeout(going);
    going = setTimeout(() => {
      if (target.value === target.max) byId("time-now")?.click();
      else byId("time-field").form.requestSubmit();
    }, SETTLED_MS);
  });
  // Then also if the bar was exchanged meanwhile, or no answer comes.
  const renewTimeBar = (then) => {
    const bar = byId("time");
    if (!bar || isPast) return then?.();
    if (then) {
      const waiting = new AbortController();
      const once = () => {
        if (waiting.signal.aborted) return;
        waiting.abort();
        then();
      };
      document.addEventListener("htmx:finally:request", once, { signal: waiting.signal });
      setTimeout(once, RENEWED_MS);
    }
    htmx.trigger(bar, "aged");
  };
  setInterval(() => {
    if (!document.hidden && !byId("time")?.contains(document.activeElement)) renewTimeBar();
  }, TIME_BAR_MS);
  // A page of now may be open for long: the last mark is asked for anew.
  const stepBack = () => {
    const own = document.querySelector("main [data-earlier]");
    if (own) own.click();
    else renewTimeBar(() => byId("time-earlier")?.click());
  };
  const stepOn = () => {
    (document.querySelector("main [data-later]") || byId("time-later") || byId("time-now"))?.click();
  };

  // --- a row under the pointer or the focus stays as it is ----------------------------------------
  let frozen = null;
  const freeze = (event) => {
    const row = event.target.closest?.("[data-row]") || null;
    if (row === frozen) return;
    frozen?.removeAttribute("hx-morph-skip");
    row?.setAttribute("hx-morph-skip", "");
    frozen = row;
  };
  document.addEventListener("focusin", freeze);
  document.addEventListener("focusout", () => {
    frozen?.removeAttribute("hx-morph-skip");
    frozen = null;
  });

  // --- keys ---------------------------------------------------------------------------------------
  let isGoing = false;
  const links = () => [...document.querySelectorAll("main [data-row] [data-open]")];
  const move = (step) => {
    const all = links();
    if (!all.length) return;
    const at = all.indexOf(document.activeElement);
    const to = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
    all[to].focus();
  };
  const actions = {
    "/": () => byId("filter")?.focus(),
    "?": () => byId("keys").showModal(),
    t: toggleTheme,
    j: () => move(1),
    k: () => move(-1),
    x: () => document.activeElement.closest("[data-row]")?.querySelector("input[name=ids]")?.click(),
    ".": () => document.querySelector("[data-act]")?.focus(),
    "[": stepBack,
    "]": stepOn,
    n: () => byId("time-now")?.click(),
    g: () => {
      isGoing = true;
      setTimeout(() => { isGoing = false; }, 1500);
    },
  };
  // --- the palette: any page, and whatever has a name ---------------------------------------------
  const palette = byId("palette");
  const words = byId("palette-words");
  const openPalette = () => {
    palette.showModal();
    words.select();
  };
  const offered = () => [...palette.querySelectorAll("li:not([hidden]) a")];
  words.addEventListener("input", () => {
    const parts = words.value.toLowerCase().split(/\s+/);
    for (const entry of byId("palette-pages").children) {
      entry.hidden = !parts.every((part) => entry.textContent.toLowerCase().includes(part));
    }
  });
  palette.addEventListener("keydown", (event) => {
    const all = offered();
    const at = all.indexOf(document.activeElement);
    if (event.key === "ArrowDown") all[Math.min(at + 1, all.length - 1)]?.focus();
    else if (event.key === "ArrowUp") (at > 0 ? all[at - 1] : words).focus();
    else if (event.key === "Enter" && event.target === words && all.length && words.value) all[0].click();
    else return;
    event.preventDefault();
  });

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input:not([type=range]), textarea, select, dialog")) return;
    if (isGoing) {
      isGoing = false;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    const act = actions[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  byId("theme").addEventListener("click", toggleTheme);
  byId("find").addEventListener("click", (event) => {
    event.preventDefault();
    openPalette();
  });
  byId("help").addEventListener("click", () => byId("keys").showModal());
})();
