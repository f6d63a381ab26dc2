// What backend run shows: devices with their health, modes that are not published and why, the edits of a container.
#pragma once

#include <string>

#include <boost/json/fwd.hpp>

namespace tranche::ctl {

// `devices` and `status` are the host's answers, `log` its log so far. A backend that was refused has the host's reason in the table.
std::string DevicesReport(const boost::json::value& devices, const boost::json::value& status, const std::string& log);

// `shares`: the host's answer. What a container with each share gets.
std::string EditsReport(const boost::json::value& shares);

// Warnings and errors of a log, a line each; "" when it has none.
std::string ProblemsReport(const std::string& log);

}  // namespace tranche::ctl
