"use strict";
// The script of the pages of `farspan view`: more of a text, tokens, searches with progress, keys. Without it, pages lack
// more text, tokens and keys. A saved page has no server, so it has neither more text nor searches.
(() => {
  const byId = (id) => document.getElementById(id);
  const base = document.body.dataset.base;
  const FILTER = ["source", "id", "text", "least", "most", "least_hidden", "most_hidden", "rows"];
  const state = () => new URLSearchParams(location.search);

  // Keep a setting in the address, and pass it on to the addresses of other rows.
  function keep(key, value) {
    const change = (given) => {
      const url = new URL(given, location.href);
      value ? url.searchParams.set(key, value) : url.searchParams.delete(key);
      return url.pathname + url.search + url.hash;
    };
    if (!base) return;
    history.replaceState(null, "", change(location.href));
    for (const link of document.querySelectorAll('a[href]:not([href^="#"])')) link.setAttribute("href", change(link.getAttribute("href")));
    for (const form of [byId("goto"), byId("filter")].filter(Boolean)) {
      let field = form.querySelector(`input[type=hidden][name=${key}]`);
      if (!field) {
        field = Object.assign(document.createElement("input"), { type: "hidden", name: key });
        form.append(field);
      }
      field.value = value;
    }
  }

  // ---- texts
  async function fetchBlock(block, start, stop, tokens) {
    const parameters = new URLSearchParams({ at: block.dataset.address, start });
    if (stop) parameters.set("stop", stop);
    if (tokens) parameters.set("tokens", 1);
    for (const name of ["draw", "part"]) if (state().get(name)) parameters.set(name, state().get(name));
    const answer = await fetch(`${base}${block.dataset.row}/block?${parameters}`);
    if (!answer.ok) throw new Error(`${answer.status}`);
    return new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
  }

  async function showMore(block) {
    const button = block.querySelector(".more");
    if (!button || button.disabled) return false;
    button.disabled = true;
    const tokens = block.classList.contains("tokenised");
    try {
      const more = await fetchBlock(block, block.dataset.stop, null, tokens);
      block.dataset.stop = more.dataset.stop;
      block.querySelector(".text").append(...more.childNodes);
      const left = block.dataset.total - block.dataset.stop;
      if (left > 0) {
        button.textContent = `Show ${Math.min(left, 8000).toLocaleString("en")} more of ${(+block.dataset.total).toLocaleString("en")} ${block.dataset.unit}`;
        button.disabled = false;
      } else button.remove();
      return true;
    } catch {
      button.textContent = "No answer; is farspan view still running?";
      button.disabled = false;
      return false;
    }
  }

  const plain = new WeakMap();
  async function setTokens(block, on) {
    const text = block.querySelector(".text");
    if (on === block.classList.contains("tokenised")) return;
    block.classList.toggle("tokenised", on);
    if (!on) {
      text.replaceChildren(...plain.get(block));
      return;
    }
    plain.set(block, [...text.childNodes]);
    const parts = [];
    const stop = +block.dataset.stop;
    for (let start = +block.dataset.start; start < stop; start += 8000)
      parts.push(...(await fetchBlock(block, start, Math.min(start + 8000, stop), true)).childNodes);
    if (block.classList.contains("tokenised")) text.replaceChildren(...parts);
  }
  const seenBlocks = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) setTokens(target, true);
  }, { rootMargin: "200px" });
  function toggleTokens(on) {
    byId("tokens").setAttribute("aria-pressed", on);
    keep("tokens", on ? "1" : "");
    for (const block of document.querySelectorAll(".block[data-tokens]")) {
      if (on) seenBlocks.observe(block);
      else {
        seenBlocks.unobserve(block);
        setTokens(block, false);
      }
    }
  }

  async function goToSpan(line) {
    const row = line.closest(".column");
    const find = () => row.querySelector(`mark[data-span="${line.dataset.to}"]`);
    const block = row.querySelector(`.block[data-address="${line.dataset.block}"]`);
    if (block && byId("tokens")?.getAttribute("aria-pressed") === "true") await setTokens(block, true);
    while (!find() && block && base && (await showMore(block)));
    const mark = find();
    if (!mark) return;
    for (const other of document.querySelectorAll("mark.arrived")) other.classList.remove("arrived");
    mark.classList.add("arrived");
    mark.scrollIntoView({ block: "center" });
  }

  document.addEventListener("click", (event) => {
    const more = event.target.closest(".more");
    if (more) showMore(more.closest(".block"));
    const line = event.target.closest(".why tr");
    if (line) goToSpan(line);
  });
  for (const kind of ["pointerover", "pointerout"])
    document.addEventListener(kind, (event) => {
      const mark = event.target.closest?.("mark[data-span]");
      if (!mark) return;
      const column = mark.closest(".column");
      for (const one of column.querySelectorAll(`[data-span="${mark.dataset.span}"], [data-to="${mark.dataset.span}"]`))
        one.classList.toggle("near-by", kind === "pointerover");
    });

  // ---- searches
  let search = null;
  async function seek(parameters) {
    search?.abort();
    const controller = (search = new AbortController());
    const bar = byId("scan");
    const [meter, message] = [bar.querySelector("progress"), bar.querySelector("span")];
    bar.hidden = false;
    message.textContent = "Searching …";
    let looked = 0;
    parameters.set("format", "json");
    try {
      for (;;) {
        const answer = await fetch(`${base}seek?${parameters}`, { signal: controller.signal });
        if (!answer.ok) {
          message.textContent = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector(".missing").textContent;
          return;
        }
        const found = await answer.json();
        looked += found.looked_at;
        meter.value = looked / Math.max(looked + found.left, 1);
        if (found.address) return void location.assign(found.address);
        if (found.next === null) {
          message.textContent = `No row fits (${looked.toLocaleString("en")} looked at).`;
          return;
        }
        message.textContent = `Looked at ${looked.toLocaleString("en")} of ${(looked + found.left).toLocaleString("en")} rows …`;
        parameters.set("start", found.next);
        parameters.set("left", found.left);
      }
    } catch (error) {
      message.textContent = error.name === "AbortError" ? `Stopped after ${looked.toLocaleString("en")} rows.` : "No answer; is farspan view still running?";
    }
  }
  const filtered = () => FILTER.some((key) => state().get(key));
  if (byId("scan")) byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    const parameters = new URLSearchParams();
    for (const [key, value] of new FormData(event.target)) if (value !== "") parameters.set(key, value);
    seek(parameters);
  });
  for (const id of ["previous", "next"])
    byId(id)?.addEventListener("click", (event) => {
      if (!filtered() || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      seek(new URL(byId(id).href).searchParams);
    });
  byId("scan")?.querySelector("button").addEventListener("click", () => search?.abort());

  // ---- runs that are being trained
  async function refresh() {
    const { live, seen } = document.body.dataset;
    try {
      const answer = document.hidden ? { status: 204 } : await fetch(`${live}${live.includes("?") ? "&" : "?"}seen=${encodeURIComponent(seen)}`);
      if (answer.status === 200) {
        document.body.dataset.seen = answer.headers.get("X-Seen");
        byId("live").replaceChildren(...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes);
        carryTheme();
      }
      byId("pulse").textContent = "read every two seconds";
    } catch {
      byId("pulse").textContent = "No answer; is farspan view still running?";
    }
    setTimeout(refresh, 2000);
  }
  if (document.body.dataset.live) setTimeout(refresh, 2000);

  // ---- looks
  function toggleLook(name, on = !document.body.classList.contains(name)) {
    document.body.classList.toggle(name, on);
    byId(name)?.setAttribute("aria-pressed", on);
    keep(name, on ? "1" : "");
  }
  function carryTheme() {
    if (state().get("theme")) keep("theme", state().get("theme"));
  }
  function nextTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    keep("theme", root.dataset.theme);
  }
  for (const tools of document.querySelectorAll(".tools")) tools.hidden = false;
  for (const name of ["brackets", "mono"]) {
    byId(name)?.addEventListener("click", () => toggleLook(name));
    if (state().get(name)) toggleLook(name, true);
  }
  carryTheme();
  byId("theme")?.addEventListener("click", nextTheme);
  byId("tokens")?.addEventListener("click", () => toggleTokens(byId("tokens").getAttribute("aria-pressed") !== "true"));
  byId("help")?.addEventListener("click", () => byId("keys").showModal());
  if (byId("tokens") && state().get("tokens")) toggleTokens(true);

  // ---- keys
  function step(forwards) {
    const sections = [...document.querySelectorAll(".saved")];
    if (!sections.length) return byId(forwards ? "next" : "previous")?.click();
    const next = forwards
      ? sections.find((one) => one.getBoundingClientRect().top > 90)
      : sections.findLast((one) => one.getBoundingClientRect().top < 40);
    next?.scrollIntoView();
  }
  const KEYS = {
    j: () => step(true), ArrowRight: () => step(true),
    k: () => step(false), ArrowLeft: () => step(false),
    r: () => byId("random")?.click(),
    g: () => byId("goto")?.elements.row.select(),
    "/": () => {
      const form = byId("filter");
      if (!form) return;
      form.querySelector("details").open = true;
      form.elements.text.focus();
    },
    t: () => byId("tokens")?.click(),
    b: () => byId("brackets")?.click(),
    m: () => byId("mono")?.click(),
    d: nextTheme,
    "?": () => byId("help")?.click(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      search?.abort();
      return void event.target.blur?.();
    }
    if (event.target.closest("input, select, textarea, dialog[open]")) return;
    const line = event.target.closest(".why tr");
    if (line && event.key === "Enter") return void goToSpan(line);
    if (KEYS[event.key]) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
})();
