// Figures under the pointer. The page is complete without.
(function () {
  "use strict";
  var report = JSON.parse(document.getElementById("report").textContent);
  var series = (report.profile || {}).series;
  if (!series) return;
  var words = {};
  document.querySelectorAll("[data-class]").forEach(function (item) {
    words[item.dataset.class] = item.dataset.words;
  });
  function round(value) {
    return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
  }
  document.querySelectorAll(".plot").forEach(function (plot) {
    var area = plot.querySelector(".area");
    var cursor = plot.querySelector(".cursor");
    var output = plot.parentNode.querySelector("output");
    var steps = Number(plot.dataset.steps);
    var all = series.bytes_in.length;
    var scale = plot.dataset.unit === "MB/s" ? 1e6 : 1;
    function rate(values, from, to) {
      var part = values.slice(from, to);
      return part.reduce(function (a, b) { return a + b; }, 0) / (part.length * series.step_seconds) / scale;
    }
    area.addEventListener("pointermove", function (event) {
      var box = area.getBoundingClientRect();
      var at = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.999999);
      var last = Math.max(Math.floor((all + Math.floor(steps / 2)) / steps), 1) - 1;
      var column = Math.min(Math.floor(at * all / steps), last);
      var from = column * steps;
      var to = column === last ? all : from + steps;
      var values = series[plot.dataset.field];
      var said = plot.dataset.field !== "waits"
        ? round(rate(values, from, to)) + " " + plot.dataset.unit
        : Object.keys(values)
            .map(function (name) { return [rate(values[name], from, to), words[name]]; })
            .filter(function (pair) { return pair[0] >= 0.005; })
            .sort(function (a, b) { return b[0] - a[0]; })
            .map(function (pair) { return pair[1] + " " + round(pair[0]); })
            .join(", ") || "nobody busy";
      output.textContent = (from * series.step_seconds).toFixed(1) + " s: " + said;
      cursor.style.left = (from + to) / 2 / all * 100 + "%";
      cursor.style.display = "block";
    });
    area.addEventListener("pointerleave", function () {
      output.textContent = "";
      cursor.style.display = "none";
    });
  });
})();
