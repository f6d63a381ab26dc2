// Route netlink on top of libnl's message building: one request, its answers, the kernel's own error text (extended ack).
// A socket belongs to the network namespace of the thread that opened it and to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <netlink/attr.h>
#include <netlink/msg.h>

#include "plugins/vnic_tc/kernel/result.h"

struct nl_sock;

namespace vnic {

// A request under construction. Every Put appends; the kernel's limits are far above what this plugin sends.
class Message {
 public:
  Message(int type, int flags);
  ~Message();
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;

  template <typename T>
  void Header(const T& header) {
    Append(&header, sizeof(header));
  }
  template <typename T>
  void Put(int attribute, const T& value) {
    PutBytes(attribute, &value, sizeof(value));
  }
  void PutText(int attribute, std::string_view text);  // with its terminating NUL
  void PutBytes(int attribute, const void* data, std::size_t size);
  nlattr* Begin(int attribute);
  void End(nlattr* nested);

  nl_msg* get() const { return message_; }

 private:
  void Append(const void* data, std::size_t size);
  nl_msg* message_;
};

// A received attribute table: attributes[IFLA_IFNAME] or nullptr.
template <int Max>
struct Attributes {
  nlattr* table[Max + 1] = {};
  nlattr* operator[](int attribute) const { return table[attribute]; }
  bool Has(int attribute) const { return table[attribute] != nullptr; }
  template <typename T>
  T Get(int attribute, T otherwise = T{}) const {
    if (table[attribute] == nullptr || nla_len(table[attribute]) < static_cast<int>(sizeof(T))) return otherwise;
    T value;
    __builtin_memcpy(&value, nla_data(table[attribute]), sizeof(T));
    return value;
  }
  std::string Text(int attribute) const {
    if (table[attribute] == nullptr) return {};
    const char* data = static_cast<const char*>(nla_data(table[attribute]));
    return std::string(data, strnlen_(data, static_cast<std::size_t>(nla_len(table[attribute]))));
  }
  static Attributes OfMessage(const nlmsghdr* header, int header_size) {
    Attributes parsed;
    nlmsg_parse(const_cast<nlmsghdr*>(header), header_size, parsed.table, Max, nullptr);
    return parsed;
  }
  static Attributes OfNested(nlattr* nested) {
    Attributes parsed;
    if (nested != nullptr) nla_parse_nested(parsed.table, Max, nested, nullptr);
    return parsed;
  }

 private:
  static std::size_t strnlen_(const char* data, std::size_t size) {
    std::size_t length = 0;
    while (length < size && data[length] != '\0') ++length;
    return length;
  }
};

using Handler = std::function<void(const nlmsghdr*)>;

class Socket {
 public:
  static Result<Socket> Open();
  // Receives the multicast group as well, without waiting: for the monitor.
  static Result<Socket> OpenMonitor(int group);
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket();

  // Sends and waits for the kernel's answer. `what` names the object in the error. Answers that precede the acknowledgement go to `handler`.
  Status Run(Message& message, std::string_view what, const Handler& handler = {});
  // A dump that the kernel interrupted (something changed meanwhile) is repeated: `reset` drops what was collected.
  Status Dump(const std::function<void(Message&)>& fill, int type, std::string_view what, const std::function<void()>& reset, const Handler& handler);
  // Monitor only. False: nothing more to read now. A Failure with ENOBUFS means that events were lost.
  Result<bool> Receive(const Handler& handler);
  int fd() const;

 private:
  explicit Socket(nl_sock* socket) : socket_(socket) {}
  Status Collect(std::uint32_t sequence, std::string_view what, const Handler& handler, bool* interrupted);
  nl_sock* socket_ = nullptr;
};

}  // namespace vnic
