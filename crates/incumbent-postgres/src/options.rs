//! Where the database is, and what in it is ours: options, and the URLs that say the same.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_store::StoreError;
use incumbent_store::url::{Parts, Scheme};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::connector::{Servers, count};

pub(crate) const SCHEME: Scheme = Scheme { name: "postgres", store: "a PostgreSQL store", port: 5432 };
/// How long a server may take to answer a dial.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// After how long a silent connection is asked for a sign of life. The usual two hours are far
/// longer than any TTL.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const KEEPALIVE_RETRIES: u32 = 3;
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);

/// What is ours in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// The schema with our tables and functions, which is ours alone: `incumbent`.
    pub schema: String,
}

impl Default for PostgresOptions {
    fn default() -> PostgresOptions {
        PostgresOptions { schema: "incumbent".to_owned() }
    }
}

impl PostgresOptions {
    /// The usual ones.
    pub fn new() -> PostgresOptions {
        PostgresOptions::default()
    }

    /// Another schema.
    pub fn schema(self, schema: &str) -> PostgresOptions {
        PostgresOptions { schema: schema.to_owned() }
    }
}

/// What a URL says.
pub(crate) struct Parsed {
    pub(crate) calls: Servers,
    /// For the connection that listens, if that goes elsewhere: past a pooler.
    pub(crate) listen: Option<Servers>,
    pub(crate) options: PostgresOptions,
    pub(crate) tls: Option<Tls>,
    /// TLS was preferred, and there is none.
    pub(crate) in_the_clear: bool,
}

#[cfg(feature = "tls")]
pub(crate) type Tls = crate::tls::Rustls;
/// This build cannot make one.
#[cfg(not(feature = "tls"))]
pub(crate) enum Tls {}

/// The files that the options of a URL name.
#[derive(Default)]
struct Files {
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
}

/// Reads a URL. What goes wrong is told without the password.
pub(crate) fn parse_url(url: &str) -> Result<Parsed, StoreError> {
    let parts = Parts::split(url).filter(|parts| matches!(parts.scheme, "postgres" | "postgresql"));
    let parts = parts.ok_or_else(|| SCHEME.wrong("it begins with postgres://"))?;
    // Either part of a password, which would then be taken for a port and a database, or of a name
    // that looks like one.
    if parts.path.contains('@') {
        return Err(SCHEME.wrong("before an @ a / is written as %2F, and in the name of a database an @ as %40"));
    }
    let (mut options, mut files) = (PostgresOptions::new(), Files::default());
    let (mut ssl_mode, mut listen, mut others) = (None, None, Vec::new());
    let query = url.split_once('?').map_or("", |(_, query)| query);
    for (word, value) in parts.options() {
        let value = value.ok_or_else(|| SCHEME.wrong("an option is option=value"))?;
        match word {
            "schema" => options.schema = SCHEME.decoded(value)?,
            "listen" => listen = Some(value),
            "sslmode" => ssl_mode = Some(value),
            "sslrootcert" => files.root = Some(SCHEME.decoded(value)?),
            "sslcert" => files.certificate = Some(SCHEME.decoded(value)?),
            "sslkey" => files.key = Some(SCHEME.decoded(value)?),
            _ => {
                // What follows an @ in it may be the rest of a password.
                if !query.contains('@') {
                    check_option(word, value)?;
                }
                others.push((word, value));
            }
        }
    }
    let tls = tls(ssl_mode, &files)?;
    let in_the_clear = tls.is_none() && matches!(ssl_mode, Some("prefer" | "allow"));
    let ssl_mode = if tls.is_some() { SslMode::Require } else { SslMode::Disable };
    let configured = |authority: &str, others: &[(&str, &str)]| {
        // What follows the first would be taken for a host, and hosts are named in messages.
        if authority.matches('@').count() > 1 {
            return Err(SCHEME.wrong("only the @ before the host stands for itself: others are written as %40"));
        }
        let others = Vec::from_iter(others.iter().map(|(word, value)| format!("{word}={value}"))).join("&");
        let mut servers = configure(&format!("{}://{authority}{}?{others}", parts.scheme, parts.path))?;
        servers.config.ssl_mode(ssl_mode);
        Ok::<_, StoreError>(servers)
    };
    let user = parts.authority.rfind('@').map_or("", |at| &parts.authority[..=at]);
    let calls = configured(parts.authority, &others)?;
    // What else says where to go is said of the calls.
    others.retain(|(word, _)| !matches!(*word, "host" | "hostaddr" | "port"));
    let listen = listen.map(|hosts| configured(&format!("{user}{hosts}"), &others)).transpose()?;
    Ok(Parsed { calls, listen, options, tls, in_the_clear })
}

/// The options of tokio-postgres that a URL can have, and what each accepts.
const OTHERS: &[(&str, &str)] = &[
    ("user", "a name"),
    ("password", "a password"),
    ("dbname", "the name of a database"),
    ("options", "settings, each as -c name=value"),
    ("application_name", "a name"),
    ("host", "names of hosts, or folders of sockets, with commas in between"),
    ("hostaddr", "IP addresses, with commas in between"),
    ("port", "numbers up to 65535, with commas in between"),
    ("connect_timeout", "a number of seconds"),
    ("tcp_user_timeout", "a number of seconds"),
    ("keepalives", "0 or 1"),
    ("keepalives_idle", "a number of seconds"),
    ("keepalives_interval", "a number of seconds"),
    ("keepalives_retries", "a number"),
    ("target_session_attrs", "any, read-write or read-only"),
    ("channel_binding", "disable, prefer or require"),
    ("load_balance_hosts", "disable or random"),
    ("sslnegotiation", "postgres or direct"),
];

/// Names an option that there is not, or that says what it cannot. What it says may be secret.
fn check_option(word: &str, value: &str) -> Result<(), StoreError> {
    let Some((_, accepted)) = OTHERS.iter().find(|(known, _)| *known == word) else {
        let others = Vec::from_iter(OTHERS.iter().map(|(known, _)| *known)).join(", ");
        return Err(SCHEME.wrong(format_args!(
            "it has no option {word:?}: there are schema, listen, sslmode, sslrootcert, sslcert, sslkey, {others}"
        )));
    };
    let alone: Result<Config, _> = format!("{}://h/?{word}={value}", SCHEME.name).parse();
    alone.map(drop).map_err(|_| SCHEME.wrong(format_args!("the option {word} is {accepted}")))
}

/// What a URL says that has none of our own options.
fn configure(url: &str) -> Result<Servers, StoreError> {
    // Its message may hold what is secret.
    let config: Config = url.parse().map_err(|_| {
        SCHEME.wrong(
            "it is postgres://user:password@host:port,host:port/database?option=value, escaped as in %40 for @, with \
               the options schema, listen, sslmode, sslrootcert, sslcert, sslkey and those of tokio-postgres",
        )
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        return Err(
            SCHEME.wrong("it names no host: it is postgres://user@host/database, or ?host=/a/folder for a socket")
        );
    }
    let file = password_file().filter(|_| config.get_password().is_none());
    Ok(match file {
        Some(file) => with_passwords(&file, config),
        None => config.into(),
    })
}

/// With what the file says of each server.
fn with_passwords(file: &Path, mut config: Config) -> Servers {
    let Ok(lines) = lines(file) else { return config.into() };
    let mut passwords = Vec::from_iter((0..count(&config)).map(|number| password(&lines, &config, number)));
    // Where all are told the same, it is the configuration's.
    passwords.dedup();
    if let [password] = &passwords[..] {
        password.as_ref().map(|password| config.password(password));
        return config.into();
    }
    let passwords = (0..count(&config)).map(|number| password(&lines, &config, number)).collect();
    Servers { config, passwords }
}

/// A URL that asks for TLS says whom to trust: a connection to nobody in particular is none that is
/// safe.
fn tls(mode: Option<&str>, files: &Files) -> Result<Option<Tls>, StoreError> {
    let asked = match mode {
        None | Some("prefer" | "allow") => files.root.is_some(),
        Some("disable") => false,
        Some("require" | "verify-ca" | "verify-full") => true,
        Some(other) => {
            return Err(SCHEME.wrong(format_args!("sslmode is disable, require or verify-full, not {other:?}")));
        }
    };
    if !asked {
        return Ok(None);
    }
    let Some(root) = &files.root else {
        return Err(SCHEME.wrong("TLS needs the option sslrootcert, a file with the certificates that are trusted"));
    };
    read_tls(root, files.certificate.as_deref(), files.key.as_deref()).map(Some)
}

#[cfg(feature = "tls")]
fn read_tls(root: &str, certificate: Option<&str>, key: Option<&str>) -> Result<Tls, StoreError> {
    let read = |path: &str| {
        std::fs::read(path).map_err(|error| SCHEME.wrong(format_args!("the file {path:?} cannot be read: {error}")))
    };
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        (None, None) => None,
        _ => return Err(SCHEME.wrong("the options sslcert and sslkey go together")),
    };
    crate::tls::Rustls::new(&read(root)?, identity.as_ref().map(|(certificate, key)| (&certificate[..], &key[..])))
}

#[cfg(not(feature = "tls"))]
fn read_tls(_: &str, _: Option<&str>, _: Option<&str>) -> Result<Tls, StoreError> {
    Err(SCHEME.wrong("this build does not speak TLS: it lacks the feature `tls`"))
}

/// A configuration that notices a dead server long before a TTL has passed.
pub(crate) fn patient(mut config: Config) -> Config {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_idle(KEEPALIVE_IDLE);
        config.keepalives_interval(KEEPALIVE_INTERVAL);
        config.keepalives_retries(KEEPALIVE_RETRIES);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED);
    }
    if config.get_application_name().is_none() {
        config.application_name("incumbent");
    }
    config
}

/// Where passwords are: `PGPASSFILE`, or `.pgpass` of the user.
fn password_file() -> Option<PathBuf> {
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    named.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass")))
}

/// What is in it, or why it is passed over, as other clients pass it over: the passwords in it may
/// be known to others.
fn lines(path: &Path) -> Result<String, Option<String>> {
    let file = std::fs::metadata(path).map_err(|_| None)?;
    let mode = file.permissions().mode() & 0o777;
    if !file.is_file() {
        return Err(Some(format!("{} is passed over, since it is no plain file", path.display())));
    }
    if mode & 0o077 != 0 {
        let path = path.display();
        return Err(Some(format!(
            "{path} is passed over, since it is open to others (mode {mode:o}): `chmod 600 {path}`"
        )));
    }
    std::fs::read_to_string(path).map_err(|error| Some(format!("{} cannot be read: {error}", path.display())))
}

/// Why the file of passwords is of no use, if there is one.
pub(crate) fn passed_over() -> Option<String> {
    lines(&password_file()?).err()?
}

/// The first line of the file that fits a server: `host:port:database:user:password`, where `*`
/// fits all.
fn password(lines: &str, config: &Config, number: usize) -> Option<String> {
    let host = match config.get_hosts().get(number) {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(_)) => "localhost".to_owned(),
        None => config.get_hostaddrs().get(number)?.to_string(),
    };
    let ports = config.get_ports();
    let port = ports.get(number).or(ports.first()).copied().unwrap_or(SCHEME.port).to_string();
    let user = config.get_user()?;
    let wanted = [host.as_str(), port.as_str(), config.get_dbname().unwrap_or(user), user];
    lines.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line);
        let password = fields.split_off(4.min(fields.len()));
        let fits = |(field, wanted): (&String, &&str)| field == "*" || field == *wanted;
        (fields.len() == 4 && fields.iter().zip(&wanted).all(fits)).then(|| password.join(":"))
    })
}

/// Split at colons, unless a backslash stands before them.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let field = match character {
            ':' => {
                fields.push(String::new());
                continue;
            }
            '\\' => characters.next(),
            other => Some(other),
        };
        if let Some(last) = fields.last_mut() {
            last.extend(field);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        parse_url(url).map(|_| ()).expect_err(url).to_string()
    }

    #[test]
    fn a_url_says_where_the_database_is_who_we_are_and_which_schema_is_ours() {
        let Parsed { calls: Servers { config, .. }, listen, options, tls, .. } =
            parse_url("postgres://me:p%40ss@a:1,b/app?schema=team_7&application_name=x&listen=c:3").unwrap();
        assert_eq!(config.get_hosts(), [Host::Tcp("a".into()), Host::Tcp("b".into())]);
        assert_eq!((config.get_user(), config.get_password()), (Some("me"), Some(&b"p@ss"[..])));
        assert_eq!((config.get_dbname(), config.get_application_name()), (Some("app"), Some("x")));
        assert_eq!((options.schema.as_str(), tls.is_none()), ("team_7", true));
        let listen = listen.unwrap().config;
        assert_eq!((listen.get_hosts(), listen.get_ports()), (&[Host::Tcp("c".into())][..], &[3][..]));
        assert_eq!((listen.get_user(), listen.get_password()), (config.get_user(), config.get_password()));
        assert_eq!(listen.get_dbname(), config.get_dbname());
        let past = parse_url("postgres:///app?host=a&hostaddr=10.0.0.1&port=6432&listen=10.0.0.2:5432").unwrap();
        assert_eq!((past.calls.config.get_hostaddrs().len(), past.calls.config.get_ports()), (1, &[6432][..]));
        let listen = past.listen.unwrap().config;
        assert_eq!((listen.get_hosts(), listen.get_ports()), (&[Host::Tcp("10.0.0.2".into())][..], &[5432][..]));
        assert!(listen.get_hostaddrs().is_empty(), "a pooler's address is not that of the server behind it");
        let with_a_question = parse_url("postgres://me:a?pool=3@h/app").unwrap().calls.config;
        assert_eq!(with_a_question.get_password(), Some(&b"a?pool=3"[..]), "it is no option");
        let plain = parse_url("postgresql://h/app").unwrap();
        assert!(plain.options == PostgresOptions::new() && plain.listen.is_none() && !plain.in_the_clear);
        assert!(parse_url("postgres://h/app?sslmode=prefer").unwrap().in_the_clear);
    }

    #[test]
    fn what_a_url_cannot_say_is_refused_without_its_password() {
        for (url, why) in [
            ("mysql://h", "begins with postgres://"),
            ("postgres://me:hunter2@h/app?colour=red", "it has no option \"colour\": there are schema, listen, "),
            ("postgres://me:hunter2@h/app?pool=3", "no option \"pool\""),
            ("postgres://me:hunter2@h/app?connect_timeout=abc", "the option connect_timeout is a number of seconds"),
            ("postgres://h/app?user=me&password=hunter2&keepalives=yes", "the option keepalives is 0 or 1"),
            ("postgres://h/app?listen=b&target_session_attrs=hunter2", "the option target_session_attrs is any, "),
            ("postgres://me:hunter2@h:port/app", "host:port"),
            ("postgres://me:hunter2@h/app?listen=h:port", "host:port"),
            ("postgres://me:hunter2@h/app?sslmode=maybe", "sslmode is"),
            ("postgres://me:hunter2@h/app?sslmode=require", "needs the option sslrootcert"),
            ("postgres://me:hunter2@h/app?sslmode", "option=value"),
            ("postgres://", "it names no host"),
            ("postgres://me:hunter2@/app", "it names no host"),
            ("postgres://me:1@hunter2@h/app", "are written as %40"),
            ("postgres://me:1@hunter2@h/app?listen=h", "written as %40"),
            ("postgres://me@h/app?listen=me:hunter2@h", "written as %40"),
            ("postgres://me:1/hunter2@h/app", "a / is written as %2F"),
        ] {
            let said = refusal(url);
            assert!(said.contains("the URL of a PostgreSQL store: ") && said.contains(why), "{url}: {said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_password_comes_from_the_first_line_of_the_file_that_fits() {
        let path = std::env::temp_dir().join(format!("incumbent-pgpass-{}", std::process::id()));
        std::fs::write(&path, "# no\na:1:app:you:1\na:1:*:me:t\\:w:o\nb:*:*:*:rest\n").unwrap();
        let open_to = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let of = |url: &str| {
            let Servers { config, passwords } = with_passwords(&path, url.parse().unwrap());
            let one = config.get_password().map(|password| String::from_utf8(password.to_vec()).unwrap());
            if passwords.is_empty() { vec![one] } else { passwords }
        };
        let some = |password: &str| Some(password.to_owned());
        open_to(0o600);
        assert_eq!(of("postgres://me@a:1/app"), [some("t:w:o")]);
        assert_eq!(of("postgres://you@a:1/app"), [some("1")]);
        assert_eq!(of("postgres://you@b/app"), [some("rest")]);
        assert_eq!(of("postgres://you@b,b:2/app"), [some("rest")], "the same for both");
        assert_eq!(of("postgres://me@c,b,a:1/app"), [None, some("rest"), some("t:w:o")], "each its own");
        for mode in [0o640, 0o604, 0o620] {
            open_to(mode);
            assert_eq!(of("postgres://you@b/app"), [None], "{mode:o}");
            let why = lines(&path).unwrap_err().unwrap();
            assert!(why.contains(&format!("mode {mode:o}): `chmod 600 ")), "{why}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
