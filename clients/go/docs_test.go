package larder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Programs in the documents work as they stand, but for the server's address.
func TestProgramsOfTheDocumentsRun(t *testing.T) {
	socket, _ := live(t)
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for _, document := range []string{"../../README.md", "../../docs/clients.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "```go\n")[1:] {
			program, _, _ := strings.Cut(block, "```")
			_, wanted, found := strings.Cut(program, "// Output: ")
			if !found {
				t.Errorf("%s: a program says nothing about its output:\n%s", document, program)
				continue
			}
			wanted, _, _ = strings.Cut(wanted, "\n")
			home := t.TempDir()
			for name, content := range map[string]string{
				"main.go": strings.ReplaceAll(program, "127.0.0.1:11211", socket),
				"go.mod": "module example\n\ngo 1.24\n\nrequire larder.example/clients/go v0.0.0\n\nreplace larder.example/clients/go => " +
					here + "\n",
			} {
				if err := os.WriteFile(filepath.Join(home, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			run := exec.Command("go", "run", ".")
			run.Dir = home
			run.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
			output, err := run.CombinedOutput()
			if err != nil || strings.TrimSpace(string(output)) != wanted {
				t.Errorf("%s: %v\n%s", document, err, output)
			}
			programs++
		}
	}
	if programs != 4 {
		t.Errorf("%d programs", programs)
	}
}
