// Keeps the dashboard's page up to date; reconnects when the server was restarted.
"use strict";

{
  const token = new URLSearchParams(location.search).get("token") ?? "";
  const views = new Map();
  let names = [];
  let drawing = 0;
  const title = document.title;

  const redraw = () => {
    clearTimeout(drawing);
    // A list that is open would be closed.
    const isChoosing = document.activeElement instanceof HTMLSelectElement;
    drawing = isChoosing ? setTimeout(redraw, 500) : setTimeout(() => Page.show(names.map((name) => views.get(name)).filter(Boolean), title), 100);
  };

  const connect = () => {
    const source = new EventSource(`events?token=${encodeURIComponent(token)}`);
    source.addEventListener("runs", (event) => {
      names = JSON.parse(event.data);
      for (const name of views.keys()) if (!names.includes(name)) views.delete(name);
      redraw();
    });
    source.addEventListener("run", (event) => {
      const view = JSON.parse(event.data);
      views.set(view.name, view);
      redraw();
    });
    source.onopen = () => document.body.classList.remove("offline");
    source.onerror = () => {
      document.body.classList.add("offline");
      Page.status("The dashboard's server does not answer; the page goes on when it is back.");
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 1000);
    };
  };
  connect();
}
