// Draws the page from its data: sections, switches, tables and charts in the reader's colours. Follows runs if served.
"use strict";
(() => {
  const NARROW = 560, FEW = 4, LETTERS = 80, LINE = 20, PATIENCE = 2000;
  const KEYS = "Arrow keys move along it, plus and minus zoom, 0 shows all.";
  const cards = new Map(), sections = new Map();
  const root = document.documentElement;
  const by = (id) => document.getElementById(id);

  function make(tag, given = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "text") node.textContent = value;
      else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  }

  // Colours: tokens become colours of the current scheme.

  function colour(token) {
    const [name, strength] = token.slice(1).split("/");
    const found = getComputedStyle(root).getPropertyValue("--" + name).trim();
    if (!strength || !found) return found || token;
    const part = (from) => parseInt(found.slice(from, from + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${strength})`;
  }

  function coloured(value, key = "") {
    if (typeof value === "string") return /^@[a-z]+[0-9]*(\/[0-9.]+)?$/.test(value) ? colour(value) : value;
    if (Array.isArray(value)) return value.map((each) => coloured(each, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, name === "bdata" ? each : coloured(each, name)]));
    }
    return value;
  }

  function merged(first, second) {
    const found = { ...first };
    for (const [name, value] of Object.entries(second)) {
      const plain = value && typeof value === "object" && !Array.isArray(value);
      found[name] = plain && found[name] ? merged(found[name], value) : value;
    }
    return found;
  }

  // Charts

  const AXIS = {
    gridcolor: "@grid", linecolor: "@edge", zerolinecolor: "@edge", tickcolor: "@edge", automargin: true,
    title: { standoff: 8 }, hoverformat: "",
  };

  function legendHeight(card, narrow, entries) {
    const of = [card.keys, narrow, entries].join("|");
    if (card.legend.of !== of) card.legend = { of, height: LINE * entries }; // one line per entry, until it has been drawn
    return card.legend.height;
  }

  function base(card, view, narrow) {
    const entries = view.traces.filter((trace) => trace.showlegend !== false && trace.name).length;
    const below = narrow || entries > 6;
    const given = Object.keys(view.layout).filter((name) => /^[xy]axis/.test(name));
    const layout = {
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 13, color: "@ink" },
      paper_bgcolor: "@panel", plot_bgcolor: "@panel",
      margin: { l: narrow ? 44 : 60, r: narrow ? 8 : 20, t: below ? 12 : 40, b: 44 },
      showlegend: true,
      legend: below
        ? { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", maxheight: 9999, font: { size: narrow ? 10 : 12 } }
        : { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
      hoverlabel: { bgcolor: "@ground", bordercolor: "@edge", font: { color: "@ink", size: 13 }, align: "left" },
      hovermode: "closest", uirevision: card.chart.name + "|" + card.keys.join("|"),
      dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom",
      height: card.chart.height + (below ? legendHeight(card, narrow, entries) : 0),
    };
    for (const name of new Set(["xaxis", "yaxis", ...given])) layout[name] = AXIS;
    return layout;
  }

  function viewOf(card) {
    return card.chart.views[card.keys.join("|")];
  }

  function lit(card, trace) {
    if (!card.lit || !trace.legendgroup) return trace;
    return trace.legendgroup === card.lit ? { ...trace, zorder: 1 } : { ...trace, opacity: 0.15 };
  }

  function fitting(annotation, narrow) {
    const { narrow: short, ...given } = annotation;
    return narrow && short ? { ...given, text: short } : given;
  }

  async function draw(card) {
    const view = viewOf(card);
    const narrow = card.plot.clientWidth < NARROW;
    card.words.textContent = view.words;
    const layout = coloured(merged(base(card, view, narrow), view.layout));
    layout.annotations = (layout.annotations || []).map((each) => fitting(each, narrow));
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
    await Plotly.react(card.plot, coloured(view.traces).map((trace) => lit(card, trace)), layout, config);
    const height = card.plot._fullLayout.legend?._height;
    if (layout.legend.yref === "container" && height && height !== card.legend.height) {
      card.legend.height = height;
      await Plotly.relayout(card.plot, { height: card.chart.height + height });
    }
  }

  function axes(card, pattern) {
    return Object.keys(card.plot._fullLayout).filter((name) => pattern.test(name));
  }

  function travel(card, shift, zoom) {
    const changes = {};
    for (const name of axes(card, /^xaxis[0-9]*$/)) {
      const [low, high] = card.plot._fullLayout[name].range.map(Number);
      const wide = (high - low) * zoom, middle = (low + high) / 2 + shift * (high - low);
      changes[name + ".range"] = [middle - wide / 2, middle + wide / 2];
    }
    return Plotly.relayout(card.plot, changes);
  }

  function reset(card) {
    const view = viewOf(card), changes = {};
    for (const name of axes(card, /^[xy]axis[0-9]*$/)) {
      const range = (view.layout[name] || {}).range;
      if (range) changes[name + ".range"] = [...range];
      else changes[name + ".autorange"] = true;
    }
    return Plotly.relayout(card.plot, changes);
  }

  function keyed(card, event) {
    const moves = { ArrowLeft: [-0.2, 1], ArrowRight: [0.2, 1], "+": [0, 0.6], "=": [0, 0.6], "-": [0, 1 / 0.6] };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "0") reset(card);
    else if (moves[event.key]) travel(card, ...moves[event.key]);
    else return;
    event.preventDefault();
  }

  function fileName(card) {
    const chosen = card.chart.switches.filter((one) => Object.keys(one.options).length > 1).map((one) => one.options[card.keys[card.chart.switches.indexOf(one)]]);
    return ["fairlag", card.chart.name, ...chosen].join(" ").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/-+$/, "").slice(0, 100);
  }

  function save(card, format) {
    const size = { width: card.plot.clientWidth, height: card.plot.clientHeight };
    return Plotly.downloadImage(card.plot, { format, scale: format === "png" ? 2 : 1, filename: fileName(card), ...size });
  }

  // A chart with its title, buttons, switches, caption and numbers

  function cardOf(chart) {
    const card = { chart, keys: [], lit: "", legend: {}, shown: "" };
    card.title = make("h3");
    card.tools = make("div", { class: "tools" });
    card.switches = make("div", { class: "switches" });
    card.plot = make("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", onkeydown: (event) => keyed(card, event) });
    card.words = make("p", { class: "words", "aria-live": "polite" });
    card.caption = make("figcaption");
    card.numbers = make("div");
    card.node = make("figure", { id: "chart-" + chart.name }, make("div", { class: "top" }, card.title, card.tools), card.switches, card.plot, card.words, card.caption, card.numbers);
    return card;
  }

  function tools(card) {
    const button = (text, label, act) => make("button", { type: "button", text, title: label, "aria-label": label + ": " + card.chart.title, onclick: act });
    const moves = card.chart.travels
      ? [button("◀", "Earlier", () => travel(card, -0.5, 1)), button("▶", "Later", () => travel(card, 0.5, 1)),
         button("+", "Zoom in", () => travel(card, 0, 0.5)), button("−", "Zoom out", () => travel(card, 0, 2))]
      : [];
    return [...moves, button("Reset", "Reset the view", () => reset(card)),
      button("PNG", "Save as PNG", () => save(card, "png")), button("SVG", "Save as SVG", () => save(card, "svg"))];
  }

  function listed(label, options, chosen, pick) {
    const select = make("select", { onchange: (event) => pick(event.target.value) },
      ...options.map(([key, text]) => make("option", { value: key, text, selected: key === chosen })));
    return make("label", { class: "pick" }, label, select);
  }

  function highlight(card) {
    const options = Object.entries(card.chart.highlights);
    if (options.length <= FEW) return null;
    if (!(card.lit in card.chart.highlights)) card.lit = "";
    return listed("Highlight", [["", "none"], ...options], card.lit, (key) => { card.lit = key; draw(card); });
  }

  function switches(card) {
    const found = card.chart.switches.map((one, place) => {
      const pick = (key) => { card.keys[place] = key; draw(card); };
      const options = Object.entries(one.options);
      if (options.length < 2) return null;
      if (options.length > FEW || options.map(([, text]) => text).join("").length > LETTERS) return listed(one.label, options, card.keys[place], pick);
      const name = card.chart.name + "-" + place;
      return make("fieldset", {}, make("legend", { text: one.label }), ...options.map(([key, text]) =>
        make("label", {}, make("input", { type: "radio", name, value: key, checked: key === card.keys[place], onchange: () => pick(key) }), make("span", { text }))));
    });
    return [...found, highlight(card)].filter(Boolean);
  }

  function tableOf(table) {
    const mark = (place) => (table.marks[place] ? make("span", { class: "dot", style: `background:var(--${table.marks[place].slice(1)})` }) : null);
    const rows = table.rows.map((row, place) =>
      make("tr", {}, make("th", { scope: "row" }, mark(place), row[0]), ...row.slice(1).map((text) => make("td", { text }))));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": table.caption },
      make("table", {}, make("caption", { text: table.caption }),
        make("thead", {}, make("tr", {}, ...table.head.map((text) => make("th", { scope: "col", text })))), make("tbody", {}, ...rows)));
  }

  function folded(title, node, open) {
    return make("details", { open }, make("summary", { text: title }), node);
  }

  function update(card, chart) {
    const shown = JSON.stringify(chart);
    if (shown === card.shown) return null;
    card.shown = shown;
    card.chart = chart;
    card.keys = chart.switches.map((one, place) => (card.keys[place] in one.options ? card.keys[place] : Object.keys(one.options)[0]));
    const asked = document.activeElement && card.node.contains(document.activeElement) ? document.activeElement : null;
    const around = JSON.stringify([chart.title, chart.switches, chart.highlights]);
    if (around !== card.around) {
      card.around = around;
      card.title.textContent = chart.title;
      card.tools.replaceChildren(...tools(card));
      card.switches.replaceChildren(...switches(card));
    }
    card.plot.style.minHeight = chart.height + "px";
    card.plot.setAttribute("aria-label", `${chart.title}. ${chart.reading} ${KEYS}`);
    card.caption.textContent = chart.reading;
    const open = card.numbers.querySelector("details")?.open ?? false;
    card.numbers.replaceChildren(...(chart.table ? [folded("The numbers", tableOf(chart.table), open)] : []));
    if (asked && asked.isConnected) asked.focus({ preventScroll: true });
    return card;
  }

  // Sections

  function fill(section) {
    let kept = sections.get(section.name);
    if (!kept) {
      kept = { node: make("section", { id: section.name, "aria-labelledby": "title-" + section.name }), shown: "" };
      sections.set(section.name, kept);
    }
    const around = JSON.stringify({ ...section, charts: section.charts.map((chart) => chart.name) });
    if (around !== kept.shown) {
      kept.shown = around;
      const open = kept.node.querySelector(".source")?.open ?? false;
      const held = section.charts.map((chart) => {
        if (!cards.has(chart.name)) cards.set(chart.name, cardOf(chart));
        return cards.get(chart.name).node;
      });
      const source = section.source ? folded("As a file", make("pre", { tabindex: "0", text: section.source }), open) : null;
      source?.classList.add("source");
      kept.node.replaceChildren(...[
        make("h2", { id: "title-" + section.name, text: section.title }), make("p", { text: section.lead }), ...held,
        ...section.tables.map((table) => make("div", { class: "sheet" }, tableOf(table))),
        ...section.remarks.map((text) => make("p", { class: "remark", text })), source].filter(Boolean));
    }
    return kept.node;
  }

  async function show(page) {
    document.title = page.title + " · fairlag";
    by("title").textContent = page.title;
    by("lead").replaceChildren(...page.lead.map((text) => make("p", { text })));
    by("facts").replaceChildren(...Object.entries(page.facts).map(([name, text]) => make("div", {}, make("dt", { text: name }), make("dd", { text }))));
    const nodes = page.sections.map(fill);
    const same = nodes.length === by("content").children.length && nodes.every((node, place) => node === by("content").children[place]);
    if (!same) {
      by("content").replaceChildren(...nodes);
      by("contents").replaceChildren(...page.sections.map((one) => make("a", { href: "#" + one.name, text: one.title })));
      nodes.forEach((node) => reached.observe(node));
    }
    for (const chart of page.sections.flatMap((one) => one.charts)) {
      const card = update(cards.get(chart.name), chart);
      if (card) {
        await draw(card);
        await new Promise((done) => setTimeout(done)); // lets the browser show the chart, and the reader scroll
      }
    }
    root.dataset.drawn = String(Number(root.dataset.drawn || 0) + 1);
  }

  const reached = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const link = by("contents").querySelector(`a[href="#${target.id}"]`);
      if (!link) continue;
      if (isIntersecting) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-30% 0px -60%" });

  // The reader's colours

  function recolour() {
    for (const card of cards.values()) if (card.plot.data) draw(card);
  }

  function scheme(chosen) {
    if (chosen === "auto") delete root.dataset.theme;
    else root.dataset.theme = chosen;
    recolour();
  }

  function remembered(value) {
    try { // a page opened as a file may not be allowed to store anything
      if (value) localStorage.setItem("fairlag-colours", value);
      return localStorage.getItem("fairlag-colours");
    } catch { return null; }
  }

  by("theme").value = remembered() || "auto";
  if (by("theme").selectedIndex < 0) by("theme").value = "auto";
  scheme(by("theme").value);
  by("theme").addEventListener("change", (event) => scheme(remembered(event.target.value) || event.target.value));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  let width = innerWidth;
  addEventListener("resize", () => {
    if ((innerWidth < NARROW) !== (width < NARROW)) recolour();
    width = innerWidth;
  });

  // A page that follows runs

  function tell(text, lost) {
    by("status").hidden = !text;
    by("status").textContent = text;
    by("status").classList.toggle("lost", lost);
  }

  async function follow(address) {
    let tag = "", heard = "";
    tell("reading the runs …", false);
    for (;;) {
      try {
        const answer = await fetch(address, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag") || "";
          const page = await answer.json();
          await show(page);
          heard = page.status;
        } else if (answer.status !== 304) throw new Error(answer.statusText);
        tell(heard, false);
      } catch {
        tell(`fairlag watch does not answer. Last status: ${heard || "none"}`, true);
      }
      await new Promise((done) => setTimeout(done, PATIENCE));
    }
  }

  const page = JSON.parse(by("page").textContent);
  if (page.follow) follow(page.follow);
  else show(page);
})();
