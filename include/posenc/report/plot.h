// SPDX-License-Identifier: Apache-2.0
// posenc plot: pictures of encodings.
#pragma once
#include <string>
#include <vector>

#include "posenc/report/attend.h"
#include "posenc/report/extend.h"

namespace posenc::report {

struct PlotOptions {
  SubjectOptions subject;
  std::string kind, positions;       // kind "": wavelengths where something turns, else rows
  std::string language = "en";       // of the words
  std::vector<std::string> compare;  // further MODELs or SCHEMEs in the same picture
  std::string title;                 // "": by the kind
  Index heads = 0;                   // of the attention; 0: not given
  Index head_dim = 0;                // of q and k that are drawn
  AttendOptions call;                // of terms, decay and locality: what attend reads
  ExtendOptions extend;              // of kind extend: the table's options; `grid` of rows as well
  std::string at;                    // of kind extend: what the similarity is to
  bool extend_given = false;         // one of those was on the command line
};

// The picture in Report::bytes: Request::format is svg, html or png. Its numbers as JSON in the text
// if Request::json is set.
Report plot(PlotOptions, const Request&);

}  // namespace posenc::report
