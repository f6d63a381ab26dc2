#include "kube/kubeconfig.h"

#include <optional>
#include <string>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>

#include "base/status.h"
#include "base/text.h"
#include "config/yaml.h"
#include "kube/client.h"

namespace tranche::kube {

namespace {

using config::YamlMember;
using config::YamlNode;

bool HasControlCharacters(std::string_view text) {
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return true;
  }
  return false;
}

// One map of the file with its place for messages ("users[admin].user").
class Section {
 public:
  Section(const YamlNode& node, std::string_view file, std::string path) : node_(node), file_(file), path_(std::move(path)) {}

  absl::Status Error(int line, std::string_view field, std::string_view what) const {
    return absl::InvalidArgumentError(Cat(file_, ":", line, ": ", path_, path_.empty() ? "" : ".", field, ": ", what));
  }
  absl::Status Error(std::string_view field, std::string_view what) const { return Error(node_.line, field, what); }

  absl::StatusOr<const YamlNode*> Find(std::string_view field) const {
    const YamlNode* found = nullptr;
    for (const YamlMember& member : node_.members) {
      if (member.key != field) continue;
      if (found != nullptr) return Error(member.line, field, "is there twice; keep one");
      found = &member.value;
    }
    if (found != nullptr && found->kind == YamlNode::Kind::kNull) found = nullptr;
    return found;
  }

  // Empty when absent.
  absl::StatusOr<std::string> Text(std::string_view field) const {
    TRANCHE_ASSIGN_OR_RETURN(const YamlNode* node, Find(field));
    if (node == nullptr) return std::string();
    if (node->kind != YamlNode::Kind::kScalar) return Error(node->line, field, "must be text");
    if (HasControlCharacters(node->text)) return Error(node->line, field, "has line breaks or control characters; remove them");
    return node->text;
  }

  absl::StatusOr<bool> Flag(std::string_view field) const {
    TRANCHE_ASSIGN_OR_RETURN(const std::string text, Text(field));
    if (text.empty() || text == "false") return false;
    if (text == "true") return true;
    return Error(field, "must be true or false");
  }

  absl::StatusOr<std::string> Base64(std::string_view field) const {
    TRANCHE_ASSIGN_OR_RETURN(const YamlNode* node, Find(field));
    if (node == nullptr) return std::string();
    std::string decoded;
    if (node->kind != YamlNode::Kind::kScalar || !absl::Base64Unescape(node->text, &decoded)) return Error(node->line, field, "is not valid base64");
    return decoded;
  }

  // Absolute; empty when absent.
  absl::StatusOr<std::string> Path(std::string_view field) const {
    const absl::StatusOr<std::string> text = Text(field);
    if (!text.ok() || text->empty() || text->front() == '/') return text;
    const std::string& path = *text;
    const std::size_t slash = file_.rfind('/');
    return slash == std::string_view::npos ? path : Cat(file_.substr(0, slash + 1), path);
  }

  // The map `field` of the entry called `name` in the list `list`: clusters, users and contexts all look like that.
  absl::StatusOr<Section> Named(std::string_view list, std::string_view name, std::string_view field) const {
    TRANCHE_ASSIGN_OR_RETURN(const YamlNode* node, Find(list));
    if (node != nullptr && node->kind != YamlNode::Kind::kSequence) return Error(node->line, list, "must be a list");
    for (std::size_t i = 0; node != nullptr && i < node->items.size(); ++i) {
      const Section entry(node->items[i], file_, Cat(list, "[", i, "]"));
      if (node->items[i].kind != YamlNode::Kind::kMap) return entry.Error("name", "the entry must be a map");
      TRANCHE_ASSIGN_OR_RETURN(const std::string entry_name, entry.Text("name"));
      if (entry_name != name) continue;
      TRANCHE_ASSIGN_OR_RETURN(const YamlNode* value, entry.Find(field));
      static const YamlNode empty{YamlNode::Kind::kMap, 0, "", true, {}, {}};
      if (value == nullptr) return Section(empty, file_, Cat(list, "[", name, "].", field));
      if (value->kind != YamlNode::Kind::kMap) return entry.Error(value->line, field, "must be a map");
      return Section(*value, file_, Cat(list, "[", name, "].", field));
    }
    return Error(list, Cat("there is no entry called \"", name, "\""));
  }

  const YamlNode& node() const { return node_; }

 private:
  const YamlNode& node_;
  std::string_view file_;
  std::string path_;
};

absl::Status ReadCluster(const Section& cluster, AccessSource& source) {
  Access& access = source.access;
  TRANCHE_ASSIGN_OR_RETURN(access.server, cluster.Text("server"));
  while (access.server.ends_with('/')) access.server.pop_back();
  const bool tls = access.server.starts_with("https://");
  if (!tls && !access.server.starts_with("http://")) return cluster.Error("server", "must be a URL that begins with https:// or http://");
  const std::string_view after_scheme = std::string_view(access.server).substr(tls ? 8 : 7);
  if (after_scheme.empty() || after_scheme.front() == '/') return cluster.Error("server", "names no host");
  if (after_scheme.find_first_of("@?# ") != std::string_view::npos) return cluster.Error("server", "must not contain '@', '?', '#' or spaces");
  TRANCHE_ASSIGN_OR_RETURN(access.insecure, cluster.Flag("insecure-skip-tls-verify"));
  TRANCHE_ASSIGN_OR_RETURN(access.tls_server_name, cluster.Text("tls-server-name"));
  if (access.tls_server_name.find_first_of("/@:?# ") != std::string::npos) return cluster.Error("tls-server-name", "must be a host name");
  TRANCHE_ASSIGN_OR_RETURN(access.proxy_url, cluster.Text("proxy-url"));
  TRANCHE_ASSIGN_OR_RETURN(access.ca_pem, cluster.Base64("certificate-authority-data"));
  if (access.ca_pem.empty()) { TRANCHE_ASSIGN_OR_RETURN(source.ca_file, cluster.Path("certificate-authority")); }
  if (access.insecure && !(access.ca_pem.empty() && source.ca_file.empty())) {
    return cluster.Error("insecure-skip-tls-verify", "cannot be true together with a certificate-authority; remove one of them");
  }
  return absl::OkStatus();
}

absl::Status ReadImpersonation(const Section& user, Access& access) {
  TRANCHE_ASSIGN_OR_RETURN(const std::string as, user.Text("as"));
  TRANCHE_ASSIGN_OR_RETURN(const std::string uid, user.Text("as-uid"));
  TRANCHE_ASSIGN_OR_RETURN(const YamlNode* groups, user.Find("as-groups"));
  TRANCHE_ASSIGN_OR_RETURN(const YamlNode* extra, user.Find("as-user-extra"));
  if (as.empty() && (!uid.empty() || groups != nullptr || extra != nullptr)) return user.Error("as", "is needed with as-uid, as-groups or as-user-extra");
  if (as.empty()) return absl::OkStatus();
  access.headers.emplace_back("Impersonate-User", as);
  if (!uid.empty()) access.headers.emplace_back("Impersonate-Uid", uid);
  if (groups != nullptr && groups->kind != YamlNode::Kind::kSequence) return user.Error(groups->line, "as-groups", "must be a list");
  for (std::size_t i = 0; groups != nullptr && i < groups->items.size(); ++i) {
    const YamlNode& group = groups->items[i];
    if (group.kind != YamlNode::Kind::kScalar || HasControlCharacters(group.text)) return user.Error(group.line, Cat("as-groups[", i, "]"), "must be text");
    access.headers.emplace_back("Impersonate-Group", group.text);
  }
  if (extra != nullptr && extra->kind != YamlNode::Kind::kMap) return user.Error(extra->line, "as-user-extra", "must be a map of lists");
  for (std::size_t i = 0; extra != nullptr && i < extra->members.size(); ++i) {
    const YamlMember& member = extra->members[i];
    if (member.value.kind != YamlNode::Kind::kSequence) return user.Error(member.line, "as-user-extra", "must be a map of lists");
    for (const YamlNode& value : member.value.items) {
      if (value.kind != YamlNode::Kind::kScalar || HasControlCharacters(value.text)) return user.Error(value.line, "as-user-extra", "holds what is not text");
      access.headers.emplace_back(Cat("Impersonate-Extra-", Escape(member.key)), value.text);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadUser(const Section& user, std::string_view name, AccessSource& source) {
  for (const std::string_view field : {"exec", "auth-provider"}) {
    TRANCHE_ASSIGN_OR_RETURN(const YamlNode* node, user.Find(field));
    if (node == nullptr) continue;
    return user.Error(node->line, field,
                      Cat("user \"", name, "\" gets its credentials from a program or provider, which is not supported; ",
                          "give the user a token, tokenFile or client certificate"));
  }
  Access& access = source.access;
  TRANCHE_ASSIGN_OR_RETURN(access.client_certificate_pem, user.Base64("client-certificate-data"));
  if (access.client_certificate_pem.empty()) { TRANCHE_ASSIGN_OR_RETURN(source.certificate_file, user.Path("client-certificate")); }
  TRANCHE_ASSIGN_OR_RETURN(access.client_key_pem, user.Base64("client-key-data"));
  if (access.client_key_pem.empty()) { TRANCHE_ASSIGN_OR_RETURN(source.key_file, user.Path("client-key")); }
  const bool certificate = !access.client_certificate_pem.empty() || !source.certificate_file.empty();
  const bool key = !access.client_key_pem.empty() || !source.key_file.empty();
  if (certificate != key) return user.Error(certificate ? "client-key" : "client-certificate", "is missing: certificate and key come together");
  TRANCHE_ASSIGN_OR_RETURN(access.bearer_token, user.Text("token"));
  TRANCHE_ASSIGN_OR_RETURN(source.token_file, user.Path("tokenFile"));
  TRANCHE_ASSIGN_OR_RETURN(access.username, user.Text("username"));
  TRANCHE_ASSIGN_OR_RETURN(access.password, user.Text("password"));
  if (!access.username.empty() && (!access.bearer_token.empty() || !source.token_file.empty())) {
    return user.Error("username", "a user has either a token or a name and password; remove one of them");
  }
  return ReadImpersonation(user, access);
}

}  // namespace

absl::StatusOr<AccessSource> ParseKubeconfig(std::string_view text, std::string_view file, std::string_view context_name) {
  const config::YamlOutcome yaml = config::ParseYaml(text);
  if (!yaml.errors.empty()) {
    return absl::InvalidArgumentError(Cat(file, ":", yaml.errors.front().line, ": not a kubeconfig: ", yaml.errors.front().message));
  }
  const Section root(yaml.root, file, "");
  if (yaml.root.kind != YamlNode::Kind::kMap) return root.Error("kind", "not a kubeconfig: a map with clusters, users and contexts is expected");
  std::string context(context_name);
  if (context.empty()) { TRANCHE_ASSIGN_OR_RETURN(context, root.Text("current-context")); }
  if (context.empty()) return root.Error("current-context", "is missing, and no context was asked for; set it with kubectl config use-context");
  TRANCHE_ASSIGN_OR_RETURN(const Section chosen, root.Named("contexts", context, "context"));
  TRANCHE_ASSIGN_OR_RETURN(const std::string cluster_name, chosen.Text("cluster"));
  TRANCHE_ASSIGN_OR_RETURN(const std::string user_name, chosen.Text("user"));
  TRANCHE_ASSIGN_OR_RETURN(const Section cluster, root.Named("clusters", cluster_name, "cluster"));
  AccessSource source;
  TRANCHE_RETURN_IF_ERROR(ReadCluster(cluster, source));
  if (user_name.empty()) return source;  // anonymous, as kubectl does
  TRANCHE_ASSIGN_OR_RETURN(const Section user, root.Named("users", user_name, "user"));
  TRANCHE_RETURN_IF_ERROR(ReadUser(user, user_name, source));
  return source;
}

}  // namespace tranche::kube
