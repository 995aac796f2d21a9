// SPDX-License-Identifier: Apache-2.0
// Runs and tables as comparisons at the length that is nearest to the wanted
// one.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "evidence.h"
#include "posenc/registry/fields.h"

namespace posenc::data {
extern const std::string_view lab_published;
}  // namespace posenc::data

namespace posenc::report {
namespace {

// The tasks of the lab and of published tables that a task of advise is about.
bool is_about(const std::string& task, const Question& q) {
  if (q.scalings) return task == (q.task == "recall" ? "passkey" : "extension");
  static const std::map<std::string, std::string, std::less<>> names{
      {"recall", "passkey"}, {"addressing", "shift"}, {"state", "flipflop"}};
  if (q.task == "lm") return task == (q.encoder ? "masked" : "lm");
  const auto found = names.find(q.task);
  return task == (found == names.end() ? q.task : found->second);
}

std::optional<double> number_of(const std::string& text) {
  double x = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), x);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  return x;
}

// The index of the least ratio that reaches the wanted one, or else of the
// largest.
std::size_t nearest(const std::vector<double>& ratios, double wanted) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < ratios.size(); ++i) {
    const bool reaches = ratios[i] >= wanted * (1 - 1e-9);
    const bool best_reaches = ratios[best] >= wanted * (1 - 1e-9);
    if (reaches == best_reaches ? (reaches ? ratios[i] < ratios[best] : ratios[i] > ratios[best])
                                : reaches)
      best = i;
  }
  return best;
}

std::string scheme_name(const std::string& name, const Question& q) {
  if (q.scalings)
    return name == "rope"              ? "none"
           : name == "by_parts"        ? "ntk_by_parts"
           : name.starts_with("yarn_") ? "yarn"  // of another ramp
                                       : name;
  return name == "none" ? "nope" : name;
}

// One curve of a run: value by length, as text in growing order.
struct Curve {
  const char* metric;
  bool higher_is_better;
  const Json* values;
};

Curve curve_of(const LabRun& run) {
  if (run.task == "lm" || run.task == "masked") return {"loss", false, run.values.find("loss")};
  if (run.task == "translate") return {"character BLEU", true, run.values.find("bleu")};
  return {"accuracy", true, run.values.find("accuracy")};
}

std::string option_text(const Json& options, const char* name) {
  const Json* v = options.find(name);
  return v == nullptr || v->is_null() ? "" : v->is_string() ? v->as_string() : v->dump();
}

std::string model_of(const LabRun& run, bool encoder) {
  std::string text = run.task == "translate" ? "encoder-decoder" : encoder ? "encoder" : "decoder";
  const std::string layers = option_text(run.options, "layers"),
                    width = option_text(run.options, "width");
  if (!layers.empty()) text += ", " + layers + " layers";
  if (!width.empty()) text += ", " + width + " channels";
  if (run.parameters > 0) text += fmt::format(", {} parameters", run.parameters);
  return text;
}

std::string command_of(const LabRun& run) {
  std::string text = "./lab " + run.task;
  for (const char* name : {"train", "test", "steps", "batch", "lr", "text", "measure"})
    if (const std::string value = option_text(run.options, name);
        !value.empty() && (std::string_view(name) != "measure" || value != "loss"))
      text += value.find(' ') == std::string::npos ? fmt::format(" --{} {}", name, value)
                                                   : fmt::format(" --{} \"{}\"", name, value);
  return text;
}

// What runs must share to be compared. Drawn positions are a part of the
// scheme.
std::string group_of(const LabRun& run) {
  Json options = Json::object();
  for (const auto& [name, value] : run.options.as_object())
    if (name != "positions") options.set(name, value);
  return run.task + options.dump() + run.provenance;
}

// Values of one scheme over its seeds.
struct Sum {
  double total = 0, least = 0, most = 0;
  Index seeds = 0;
  void add(double x, Index n) {
    least = seeds == 0 ? x : std::min(least, x);
    most = seeds == 0 ? x : std::max(most, x);
    total += x * static_cast<double>(n);
    seeds += n;
  }
  double mean() const { return total / static_cast<double>(seeds); }
};

class RunGroup {
 public:
  RunGroup(const Question& q, bool tuned) : question_(q), tuned_(tuned) {}

  void add(const LabRun& run, const std::string& label, const std::string& text, const Json* curve,
           const char* metric, bool higher) {
    if (curve == nullptr || !curve->is_object()) return;
    if (curves_.empty()) start(run, metric, higher);
    const auto found = std::find_if(curves_.begin(), curves_.end(),
                                    [&](const auto& c) { return c.label == label; });
    Lines& lines = found == curves_.end()
                       ? curves_.emplace_back(Lines{scheme_name(label, question_), label, text, {}})
                       : *found;
    for (const auto& [length, value] : curve->as_object())
      if (value.is_number()) lines.by_length[length].add(value.as_number(), run.seeds);
  }

  // At the nearest length that any of them has.
  std::optional<Comparison> at_ratio() const {
    std::vector<std::string> names;
    std::vector<double> ratios;
    for (const Lines& c : curves_)
      for (const auto& [length, sum] : c.by_length)
        if (const std::optional<double> r = ratio_of(length); r && *r > 1 + 1e-9) {
          names.push_back(length);
          ratios.push_back(*r);
        }
    if (ratios.empty()) return std::nullopt;
    const std::size_t at = nearest(ratios, question_.ratio);
    Comparison c = head_;
    c.column = names[at];
    c.ratio = ratios[at];
    if (head_.trained) c.length = std::llround(ratios[at] * static_cast<double>(*head_.trained));
    for (const Lines& line : curves_) {
      const auto sum = line.by_length.find(names[at]);
      if (sum == line.by_length.end()) continue;
      Entry e{line.scheme, line.label, line.text, sum->second.mean()};
      e.least = sum->second.least;
      e.most = sum->second.most;
      e.seeds = sum->second.seeds;
      for (const auto& [length, in] : line.by_length)
        if (const std::optional<double> r = ratio_of(length); r && std::abs(*r - 1) < 1e-9)
          e.in_length = in.mean();
      c.entries.push_back(std::move(e));
    }
    return c;
  }

 private:
  struct Lines {
    std::string scheme, label, text;
    std::map<std::string, Sum> by_length;
  };

  void start(const LabRun& run, const char* metric, bool higher) {
    head_.is_measured = true;
    head_.higher_is_better = higher;
    head_.is_tuned = tuned_;
    head_.metric = metric;
    head_.source = run.provenance.empty() ? "runs of the lab" : run.provenance;
    head_.model = model_of(run, run.task == "direction" || run.task == "masked");
    head_.data = option_text(run.options, "text");
    head_.command = command_of(run);
    if (run.task != "translate") head_.trained = run.options.at("train").as_integer();
  }
  // Short and long sentences of translation: the long ones are twice as long.
  std::optional<double> ratio_of(const std::string& length) const {
    if (!head_.trained) return length == "short" ? 1.0 : 2.0;
    const std::optional<double> n = number_of(length);
    if (!n) return std::nullopt;
    return *n / static_cast<double>(*head_.trained);
  }

  const Question& question_;
  bool tuned_;
  Comparison head_;
  std::vector<Lines> curves_;
};

void add_modes(RunGroup& group, const LabRun& run, const char* which, const char* metric,
               bool higher) {
  const Json* modes = run.values.find("modes");
  if (modes == nullptr || !modes->is_object()) return;
  for (const auto& [name, mode] : modes->as_object()) {
    const Json* scheme = mode.find("scheme");
    group.add(run, name, scheme != nullptr && scheme->is_string() ? scheme->as_string() : name,
              mode.find(which), metric, higher);
  }
}

// Columns of a table, each with its ratio; none: no length.
std::vector<std::optional<double>> ratios_of(const Json& table) {
  const Json& trained = table.at("trained");
  const std::string& axis = table.at("axis").as_string();
  std::vector<std::optional<double>> ratios;
  for (const Json& column : table.at("columns").as_array()) {
    std::optional<double> ratio;
    if (axis == "tokens" && trained.is_integer())
      ratio = column.as_number() / trained.as_number();
    else if (axis == "times the trained length" && column.as_string().ends_with(" x"))
      ratio = number_of(column.as_string().substr(0, column.as_string().size() - 2));
    ratios.push_back(ratio);
  }
  return ratios;
}

Comparison head_of(const Json& table, bool tuned) {
  Comparison c;
  c.higher_is_better = table.at("higher_is_better").as_bool();
  c.is_tuned = tuned;
  c.source = table.at("source").as_string() + ", " + table.at("table").as_string();
  c.model = table.at("model").as_string();
  c.data = table.at("data").as_string();
  c.metric = table.at("metric").as_string();
  if (table.at("trained").is_integer()) c.trained = table.at("trained").as_integer();
  return c;
}

bool is_tuned(const Json& row) {
  const Json* tuned = row.find("tuned");
  return tuned != nullptr && tuned->as_bool();
}

// A column of a table for rows that were fine-tuned, or not.
std::optional<Comparison> column_of(const Json& table, std::size_t column,
                                    const std::vector<std::optional<double>>& ratios, bool tuned,
                                    const Question& q) {
  Comparison c = head_of(table, tuned);
  const Json& name = table.at("columns").as_array()[column];
  c.column = name.is_string() ? name.as_string() : name.dump();
  c.ratio = ratios[column];
  if (name.is_integer()) c.length = name.as_integer();
  for (const Json& row : table.at("rows").as_array()) {
    const Json& value = row.at("values").as_array()[column];
    if (!row.at("scheme").is_string() || !value.is_number() || is_tuned(row) != tuned) continue;
    Entry e{scheme_name(row.at("scheme").as_string(), q), row.at("label").as_string(), "",
            value.as_number()};
    for (std::size_t i = 0; i < ratios.size(); ++i)
      if (const Json& in = row.at("values").as_array()[i];
          ratios[i] && std::abs(*ratios[i] - 1) < 1e-9 && in.is_number())
        e.in_length = in.as_number();
    if (const Json* bounds = row.find("at_least"))
      e.at_least = bounds->is_bool() ? bounds->as_bool() : bounds->as_array()[column].as_bool();
    c.entries.push_back(std::move(e));
  }
  if (c.entries.empty()) return std::nullopt;
  return c;
}

bool has_scalings(const Json& table) {
  const std::vector<SchemeInfo> scalings = all_scalings();
  return std::ranges::any_of(table.at("rows").as_array(), [&](const Json& row) {
    return row.at("scheme").is_string() && std::ranges::any_of(scalings, [&](const SchemeInfo& s) {
             return s.card.name == row.at("scheme").as_string();
           });
  });
}

void add_table(const Json& table, const Question& q, std::vector<Comparison>& all) {
  const auto ratios = ratios_of(table);
  for (const bool tuned : {false, true}) {
    std::vector<double> known;
    std::vector<std::size_t> columns;
    for (std::size_t i = 0; i < ratios.size(); ++i)
      if (ratios[i] && *ratios[i] > 1 + 1e-9 && column_of(table, i, ratios, tuned, q)) {
        known.push_back(*ratios[i]);
        columns.push_back(i);
      }
    if (!known.empty()) {
      all.push_back(*column_of(table, columns[nearest(known, q.ratio)], ratios, tuned, q));
      continue;
    }
    if (table.at("axis").as_string() == "tokens" || table.at("axis").as_string() == "length")
      continue;
    for (std::size_t i = 0; i < ratios.size(); ++i)
      if (auto c = column_of(table, i, ratios, tuned, q); c && !ratios[i])
        all.push_back(std::move(*c));
  }
}

}  // namespace

std::vector<Comparison> compare_runs(const std::vector<LabRun>& runs, const Question& q) {
  std::vector<std::pair<std::string, RunGroup>> groups;
  const auto group = [&](const std::string& key, bool tuned) -> RunGroup& {
    for (auto& [name, g] : groups)
      if (name == key + (tuned ? "tuned" : "")) return g;
    return groups.emplace_back(key + (tuned ? "tuned" : ""), RunGroup(q, tuned)).second;
  };
  for (const LabRun& run : runs) {
    if (q.scalings) {
      const bool recall = option_text(run.options, "measure") == "passkey";
      if (run.task != "extension" || recall != (q.task == "recall")) continue;
      for (const bool tuned : {false, true})
        add_modes(group(group_of(run), tuned), run, tuned ? "tuned" : "zero",
                  recall ? "accuracy" : "loss", recall);
    } else if (is_about(run.task, q)) {
      const Curve curve = curve_of(run);
      group(group_of(run), false)
          .add(run, run.label, run.scheme, curve.values, curve.metric, curve.higher_is_better);
    }
  }
  std::vector<Comparison> all;
  for (const auto& [name, g] : groups)
    if (auto c = g.at_ratio()) all.push_back(std::move(*c));
  return all;
}

std::vector<Comparison> compare_tables(const Question& q) {
  const Json file = parse_json(data::lab_published, "published.json");
  std::vector<Comparison> all;
  for (const Json& table : file.at("tables").as_array()) {
    const bool encoder = table.at("encoder").as_bool();
    if (is_about(table.at("task").as_string(), q) && has_scalings(table) == q.scalings &&
        (encoder == q.encoder || q.task == "direction" || q.task == "translate"))
      add_table(table, q, all);
  }
  return all;
}

}  // namespace posenc::report
