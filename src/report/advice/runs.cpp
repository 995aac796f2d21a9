// SPDX-License-Identifier: Apache-2.0
// Runs of the lab: results.jsonl and the packaged results.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "evidence.h"
#include "posenc/core/error.h"

namespace posenc::data {
extern const std::string_view lab_results;
}  // namespace posenc::data

namespace posenc::report {
namespace {

constexpr const char* kSchema = "posenc.lab/1";
constexpr std::uintmax_t kMostBytes = 100'000'000;

const Json& member(const Json& row, const char* name, bool (Json::*is)() const, const char* rule,
                   const std::string& file, const std::string& place) {
  const Json* found = row.find(name);
  if (found == nullptr || !(found->*is)())
    throw FormatError(file, place,
                      fmt::format("{} must be {}, got {}", name, rule,
                                  found == nullptr ? std::string("nothing") : found->dump()));
  return *found;
}

// None: the run ended early.
std::optional<LabRun> run_of(const Json& row, const std::string& file, const std::string& place) {
  if (!row.is_object()) throw FormatError(file, place, "must be an object, got " + row.dump());
  const Json* schema = row.find("schema");
  if (schema == nullptr || *schema != Json(kSchema))
    throw FormatError(file, place,
                      fmt::format("schema must be \"{}\", got {}", kSchema,
                                  schema == nullptr ? std::string("nothing") : schema->dump()));
  LabRun run;
  const auto text = [&](const char* name) {
    return member(row, name, &Json::is_string, "a text", file, place).as_string();
  };
  run.task = text("task");
  run.label = text("label");
  run.scheme = text("scheme");
  run.options = member(row, "options", &Json::is_object, "an object", file, place);
  run.values = member(row, "values", &Json::is_object, "an object", file, place);
  if (row.find("failed") != nullptr) return std::nullopt;
  if (run.task != "translate") {
    const Json* train = run.options.find("train");
    if (train == nullptr || !train->is_integer() || train->as_integer() < 1)
      throw FormatError(file, place, "options.train must be the trained length, 1 or more");
  }
  if (const Json* n = row.find("seeds")) run.seeds = n->as_integer();
  if (const Json* n = row.find("parameters"); n != nullptr && n->is_integer())
    run.parameters = n->as_integer();
  if (const Json* n = row.find("provenance")) run.provenance = n->as_string();
  return run;
}

std::string identity(const Json& row) {
  std::string key;
  for (const char* name : {"task", "scheme", "seed", "options"})
    if (const Json* value = row.find(name)) key += value->dump() + "\n";
  return key;
}

}  // namespace

std::vector<LabRun> read_runs(const std::string& path) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(file)) file /= "results.jsonl";
  const std::string name = file.string();
  std::error_code problem;
  const std::uintmax_t size = std::filesystem::file_size(file, problem);
  if (problem) throw FormatError(name, "file", "cannot be read: " + problem.message());
  if (size > kMostBytes) throw FormatError(name, "file", "must be at most 100 MB");
  std::ifstream in(file);
  std::vector<LabRun> runs;
  std::map<std::string, std::pair<Index, std::string>> seen;  // line and numbers of an identity
  std::string line;
  for (Index number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("line {}", number);
    Json row;
    try {
      row = parse_json(line, name);
    } catch (const FormatError& e) {
      throw FormatError(name, place, fmt::format("is damaged: {}", e.what()));
    }
    std::optional<LabRun> run = run_of(row, name, place);
    if (!run) continue;
    const auto [at, is_new] = seen.emplace(identity(row), std::pair(number, run->values.dump()));
    if (!is_new && at->second.second != run->values.dump())
      throw FormatError(name, place,
                        fmt::format("is the run of line {} with other numbers", at->second.first));
    if (is_new) runs.push_back(std::move(*run));
  }
  if (runs.empty()) throw FormatError(name, "file", "has no finished runs");
  return runs;
}

std::vector<LabRun> packaged_runs() {
  const Json file = parse_json(data::lab_results, "packaged results");
  std::vector<LabRun> runs;
  for (const Json& row : file.at("runs").as_array())
    if (std::optional<LabRun> run = run_of(row, "packaged results", row.dump()))
      runs.push_back(std::move(*run));
  return runs;
}

}  // namespace posenc::report
